"""`gpuwatch config`: the configuration in force and its origins, a check of a file, the schema."""

import os
from pathlib import Path
from typing import Any

import click

from gpuwatch.cli.console.commands import Entry
from gpuwatch.cli.console.lazy import LazyGroup
from gpuwatch.cli.console.options import option, settings_options
from gpuwatch.cli.console.session import Session, pass_session
from gpuwatch.cli.console.text import Text

ENTRIES = (
    Entry("show", "Show the configuration in force and where each value is from.", "config:show", "Commands"),
    Entry("check", "Check a configuration file.", "config:check", "Commands"),
    Entry("schema", "Print the JSON Schema of the configuration.", "config:schema", "Commands"),
)


@click.group(cls=LazyGroup, entries=ENTRIES)
def config() -> None:
    """Show and check the configuration."""


@click.command(short_help="Show the configuration in force and where each value is from.")
@settings_options
@option("-o", "--output", type=click.Choice(["table", "yaml", "json"]), default="table", help="Default: table.")
@pass_session
def show(session: Session, /, output: str, **options: Any) -> None:
    """Show the configuration in force and where each value is from.

    Takes the options of `agent`. As YAML it can be saved and used.

    \b
    Examples:
      gpuwatch --config gpuwatch.yaml config show
      gpuwatch config show -o yaml > gpuwatch.yaml
    """
    import msgspec

    from gpuwatch.cli.console.effective_config import flat

    found = session.effective(options)
    if output in ("json", "yaml"):
        session.terminal.document(found.config, output)
    else:
        values = flat(msgspec.to_builtins(found.config))
        written = {key: msgspec.json.encode(value).decode() for key, value in values.items()}
        key_width, value_width = (max(map(len, texts)) for texts in (written, written.values()))
        lines = [
            Text.assemble(
                f"{key:<{key_width}}  {value:<{value_width}}  ",
                (found.origins[key], "bold") if key in found.origins else ("default", "dim"),
                no_wrap=True,
            )
            for key, value in written.items()
        ]
        session.terminal.show(*lines)


@click.command(short_help="Check a configuration file.")
@click.argument("file", type=click.Path(dir_okay=False))
@pass_session
def check(session: Session, file: str) -> None:
    """Check a configuration file: exit 0 when the agent would take it, 2 with the reason when not.

    Checks the web configurations that it names, too, if they are on this machine.

    \b
    Example:
      gpuwatch config check /etc/gpuwatch.yaml
    """
    from gpuwatch.cli.console.effective_config import with_known_families
    from gpuwatch.config import load
    from gpuwatch.health.checks import CHECKS
    from gpuwatch.http.web_guard import WebGuard
    from gpuwatch.remediation.planning.policy import Policy
    from gpuwatch.tuning.cycle.obstacles import MAX_VIEW_INTERVAL

    config = with_known_families(load(Path(file)), file)
    Policy.compile(config.remediation, CHECKS, config.checks.xids)
    named = {section.web_config for section in (config.agent, config.remediation, config.tuning)} - {""}
    elsewhere = {path for path in named if not os.path.exists(path)}
    for path in sorted(named - elsewhere):
        WebGuard(Path(path))
    session.terminal.hint(f"{file} is a good configuration")
    for path in sorted(elsewhere):
        session.terminal.hint(f"hint: {path} was not checked: it is not here, or its folder is closed")
    if config.tuning.mode == "enforce" and config.agent.interval > MAX_VIEW_INTERVAL:
        session.terminal.hint(
            f"hint: tuning.mode enforce tunes nothing while the agent samples every {config.agent.interval:g} s; set "
            "agent.interval: 1 (on Kubernetes the component tuner-enforce does)"
        )


@click.command(short_help="Print the JSON Schema of the configuration.")
@pass_session
def schema(session: Session) -> None:
    """Print the JSON Schema of the configuration, for editors and validators."""
    import msgspec

    from gpuwatch.config import Config

    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(Config)}
    session.terminal.document(document, "json")
