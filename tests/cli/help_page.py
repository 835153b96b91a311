"""Writes docs/cli.md from the command tree: `python -m tests.cli.help_page > docs/cli.md`. A test compares."""

import re
from collections.abc import Iterator

import click

from gpuwatch.cli.main import cli

WIDTH = 100

SHARED = {
    "--output": ("-o, --output FORMAT", "A format that the line names; the first is the default."),
    "--gpu": ("--gpu ID,...", "Only these GPUs: index, UUID or PCI address."),
    "--namespace": ("-n, --namespace NAMESPACE", "Of the pod, if its name is there in several."),
    "--node": ("--node NAME", "The Node. Default: the configuration's, else NODE_NAME. `GPUWATCH_NODE_NAME`"),
    "--node-name": ("--node-name NAME", "The Node of this machine. Default: NODE_NAME. `GPUWATCH_NODE_NAME`"),
    "--kubeconfig": (
        "--kubeconfig FILE",
        "Default: service account, KUBECONFIG or ~/.kube/config. `GPUWATCH_KUBECONFIG`",
    ),
    "--agent": (
        "--agent SOCKET|URL|none",
        "The agent. Default: the one here. `GPUWATCH_AGENT_SOCKET`; of `node`: `GPUWATCH_NODE_AGENT`",
    ),
    "--state-dir": (
        "--state-dir DIR",
        "Where agent, remediator, tuner and guard keep state. Default: /var/lib/gpuwatch. `GPUWATCH_STATE_DIR`",
    ),
    "--web-config": ("--web-config FILE", "TLS and users (exporter-toolkit)."),
    "--header": ("--header NAME:VALUE", "Such as X-Scope-OrgID: a; repeatable."),
}
"""Options of several commands, which the page explains once: how they are written, and their meaning."""

OTHERS = {("gpuwatch recommend", "--namespace")}
"""Options that are called like a shared one and mean another thing."""

SAME_OPTIONS = {"gpuwatch config show"}
"""Commands that take the options of another one, as their help says."""

LISTED = re.compile(r"^(  [a-z]+) {2,}\S.*$", re.MULTILINE)
"""A command in the list of all: its own section says the rest again."""

PREFACE = """# The command line

Made from the program's own help by `python -m tests.cli.help_page`; edit that.

Data goes to stdout; logs, progress and hints go to stderr. Options of the whole program stand before the command.
Only the first block has exit codes and variables, and only this table the options that a line *Also* names:

| option | meaning |
| --- | --- |
"""


def markdown() -> str:
    """The page: every command's help, in the order of the help."""
    shared = "\n".join(
        f"| `{written}` | {meaning} |".replace("|none", "\\|none").replace("|URL", "\\|URL")
        for written, meaning in SHARED.values()
    )
    sections = (f"{'#' * depth} {path}\n\n```text\n{text}\n```\n" for depth, path, text in helps(cli, "gpuwatch", None))
    return PREFACE + shared + "\n\n" + "\n".join(sections)


def helps(command: click.Command, name: str, parent: click.Context | None) -> Iterator[tuple[int, str, str]]:
    """Depth of the heading, path and text of a command and all below it."""
    settings = {**command.context_settings, "terminal_width": WIDTH, "max_content_width": WIDTH}
    ctx = click.Context(command, parent=parent, info_name=name, **settings)
    text = LISTED.sub(r"\1", command.get_help(ctx)) if parent is None else _text(command, ctx)
    yield ctx.command_path.count(" ") + 2, ctx.command_path, text.rstrip()
    if isinstance(command, click.Group):
        for sub in command.list_commands(ctx):
            inner = command.get_command(ctx, sub)
            if inner is not None:
                yield from helps(inner, sub, ctx)


def _text(command: click.Command, ctx: click.Context) -> str:
    """Its help without what the top of the page and the sections of its own commands say."""
    formatter = ctx.make_formatter()
    arguments = [piece for piece in command.collect_usage_pieces(ctx) if piece != "[OPTIONS]"]
    if arguments and not isinstance(command, click.Group):
        formatter.write(f"  {ctx.command_path} {' '.join(arguments)}\n")
    command.format_help_text(ctx, formatter)
    own, also = [], []
    for param in command.get_params(ctx):
        option, record = max(param.opts, key=len), param.get_help_record(ctx)
        if ctx.command_path in SAME_OPTIONS and option != "--output":
            continue
        if option in SHARED and (ctx.command_path, option) not in OTHERS:
            also.append(f"-o {'|'.join(param.type.choices)}" if isinstance(param.type, click.Choice) else option)
        elif record is not None and isinstance(param, click.Option) and option != "--help":
            own.append(record)
    if own:
        with formatter.section("Options"):
            formatter.write_dl(own)
    if also:
        formatter.write(f"\n  Also: {', '.join(also)}\n")
    if command.epilog != cli.epilog:
        command.format_epilog(ctx, formatter)
    return formatter.getvalue().lstrip("\n")


if __name__ == "__main__":
    click.echo(markdown(), nl=False)
