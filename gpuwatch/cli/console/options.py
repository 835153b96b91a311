"""Options that several commands share; every option can also be given as a GPUWATCH_* variable."""

import difflib
import importlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from gpuwatch.cli.console.effective_config import OVERRIDES, Override
from gpuwatch.cli.console.session import Session
from gpuwatch.model.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.model.snapshot import Identity
    from gpuwatch.model.view import View

NODE_NAME, KUBECONFIG = "GPUWATCH_NODE_NAME", "GPUWATCH_KUBECONFIG"
"""Variables of options that the remediator and the node commands have in common."""

LARGEST = 1e9
"""Seconds, about 30 years; Python can wait for at most nine times as long."""

Command = TypeVar("Command", bound=Callable[..., Any])


class _Option(click.Option):
    """An option whose help names its variable, unless it is GPUWATCH_COMMAND_OPTION as each help's end states."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Its row of the help."""
        option = max(self.opts, key=len).lstrip("-").replace("-", "_").upper()
        named = self.envvar or f"{ctx.auto_envvar_prefix}_{(self.name or '').upper()}"
        self.show_envvar = f"{ctx.auto_envvar_prefix}_{option}" not in ((named,) if isinstance(named, str) else named)
        return super().get_help_record(ctx)


def option(*names: str, **attributes: Any) -> Callable[[Command], Command]:
    """`click.option`; the help shows its variable where that does not follow the common pattern."""
    return click.option(*names, cls=_Option, **attributes)


USUAL_FORMATS = ("table", "wide", "json", "yaml", "name")


def output(*formats: str, schema: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """`-o FORMAT`, the first is the default; USUAL_FORMATS if none is given. `schema`: kind, `module:Item` and perhaps
    `module:Envelope` of the document, for `-o schema`, which is answered before anything else.
    """
    formats = (*(formats or USUAL_FORMATS), *(("schema",) if schema else ()))

    def remember(ctx: click.Context, _: click.Parameter, value: str) -> str:
        session = ctx.ensure_object(Session)
        session.json_errors = value == "json"
        if schema and value == "schema" and not ctx.resilient_parsing:
            from gpuwatch.cli.console import document

            names = (each.split(":") for each in schema[1:])
            types = (getattr(importlib.import_module(f"gpuwatch.{module}"), name) for module, name in names)
            session.terminal.page(document.schema(schema[0], *types) + "\n")
            ctx.exit()
        return value

    return option(
        "-o",
        "--output",
        type=click.Choice(formats),
        metavar="FORMAT",
        default=formats[0],
        callback=remember,
        help=f"{', '.join(formats[:-1])} or {formats[-1]}.",
    )


def keeps_state(help_text: str) -> Callable[[Command], Command]:
    """`--state-dir`, for commands without a role's options."""

    def remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        ctx.ensure_object(Session).state_dir = value

    return option(
        "--state-dir",
        metavar="DIR",
        envvar="GPUWATCH_STATE_DIR",
        callback=remember,
        expose_value=False,
        help=f"{help_text} Default: /var/lib/gpuwatch.",
    )


def state_dir(command: Command) -> Command:
    """`--state-dir`, for commands that read what an agent has kept."""
    return keeps_state("Without an agent: where one has kept its state.")(command)


def namespace(command: Command) -> Command:
    """`-n NAMESPACE`."""
    return option("-n", "--namespace", metavar="NAMESPACE", help="Of the pod, if its name is there in several.")(
        command
    )


class Number(click.FloatRange):
    """A finite number, because click's own range accepts NaN and infinity. Without `max` at most LARGEST."""

    def __init__(self, min: float, max: float | None = None) -> None:
        super().__init__(min, max)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Within the range."""
        number = float(super().convert(value, param, ctx))
        if math.isnan(number) or (self.max is None and number > LARGEST):
            self.fail(f"{value!r} is not a number up to {self.max or LARGEST:g}", param, ctx)
        return number


class ResourceName(click.types.StringParamType):
    """A resource, singular or plural or short, as kubectl takes them. `names`: name to its other names."""

    name = "resource"

    def __init__(self, names: Mapping[str, Sequence[str]]) -> None:
        self._names = {alias: name for name, also in names.items() for alias in (name, *also)}
        self.choices = list(names)

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The name in the table."""
        if (name := self._names.get(value.lower())) is None:
            near = difflib.get_close_matches(value, self._names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(self.choices)}"
            self.fail(f"unknown resource {value!r}; {hint}", param, ctx)
        return name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """Completions, without the other names."""
        return [CompletionItem(name) for name in self.choices if name.startswith(incomplete)]


def gpus(command: Command) -> Command:
    """`--gpu 0,3`."""
    return option("--gpu", "gpu", metavar="ID,...", help="Only these GPUs: index, UUID or PCI address.")(command)


def find_gpu(view: "View", text: str) -> "Identity":
    """The GPU named by index, UUID (or its beginning) or PCI address.

    Raises:
        UsageError: no GPU or several match.
    """
    from gpuwatch.model.pci import pci_key

    text = text.strip()
    known = [status.identity for status in view.snapshot.statuses]
    if text.isdigit() and len(text) < 5:
        found = [identity for identity in known if identity.index == int(text)]
    elif (key := pci_key(text)) is not None:
        found = [identity for identity in known if pci_key(identity.pci_bus_id) == key]
    else:
        found = [identity for identity in known if len(text) > 4 and identity.uuid.lower().startswith(text.lower())]
    if len(found) == 1:
        return found[0]
    indices = ", ".join(str(identity.index) for identity in known) or "none"
    what = f"no GPU matches {text!r}" if not found else f"{len(found)} GPUs match {text!r}"
    raise UsageError(what, f"this node has GPUs {indices}", "see gpuwatch get gpus -o wide")


def chosen_gpus(view: "View", text: str | None) -> Collection[str] | None:
    """UUIDs of a comma-separated list; None = all."""
    return None if text is None else {find_gpu(view, part).uuid for part in text.split(",")}


def row_options(rows: Sequence[Override]) -> Callable[[Command], Command]:
    """Add an option for every row."""

    def add(command: Command) -> Command:
        for row in reversed(rows):
            command = option(
                row.flag,
                row.name,
                metavar=row.metavar or None,
                is_flag=row.type is bool,
                help=row.help,
                envvar=row.variable,
                multiple=row.many,
                type=row.type,
                default=() if row.many else None,
            )(command)
        return command

    return add


settings_options = row_options(OVERRIDES)
"""Adds the options of the agent."""
