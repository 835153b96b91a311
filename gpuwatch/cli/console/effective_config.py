"""The configuration a command runs with, and where each value came from: default, file, variable or option.

A row of OVERRIDES is a setting that the command line can change. Its variable is that of its option.
"""

from collections.abc import Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from gpuwatch.config import Config


class Override(NamedTuple):
    """`path` is the key in the configuration, `name` the option's parameter; `many`: may be given several times.
    `ranks`: values, the least permissive first; a file with a less permissive one overrules option and variable.
    """

    path: str
    name: str
    metavar: str
    help: str
    variable: str
    many: bool = False
    type: type = str
    ranks: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The option as it is typed."""
        return "--" + self.name.replace("_", "-")


OVERRIDES = (
    Override("agent.listen", "listen", "ADDR:PORT", "Where to serve HTTP. Default: :9400.", "GPUWATCH_AGENT_LISTEN"),
    Override("agent.socket", "socket", "PATH", "Unix socket for other commands.", "GPUWATCH_AGENT_SOCKET"),
    Override(
        "agent.interval",
        "interval",
        "SECONDS",
        "Time between samples. Default: 2.",
        "GPUWATCH_AGENT_INTERVAL",
        type=float,
    ),
    Override(
        "agent.wait_for_driver",
        "wait_for_driver",
        "",
        "Serve on without an NVML library, and look for it again.",
        "GPUWATCH_AGENT_WAIT_FOR_DRIVER",
        type=bool,
    ),
    Override(
        "agent.web_config", "web_config", "FILE", "TLS and users (exporter-toolkit).", "GPUWATCH_AGENT_WEB_CONFIG"
    ),
    Override(
        "metrics.profiles",
        "profile",
        "NAME",
        "native, dcgm-4.8 or dcgm-4.9; repeatable.",
        "GPUWATCH_AGENT_PROFILE",
        many=True,
    ),
    Override("metrics.processes", "processes", "", "Series per process, too.", "GPUWATCH_AGENT_PROCESSES", type=bool),
    Override("state_dir", "state_dir", "DIR", "Where state is kept. Default: /var/lib/gpuwatch.", "GPUWATCH_STATE_DIR"),
)
"""Options of the agent. `--nvml-library` is global and handled beside them."""

NVML_LIBRARY = Override("sources.nvml_library", "nvml_library", "PATH", "", "GPUWATCH_NVML_LIBRARY")


class Effective(NamedTuple):
    """A configuration; `origins` maps key path to `file PATH`, `env VARIABLE` or `option --x`; missing is default."""

    config: "Config"
    origins: Mapping[str, str]


def effective(
    path: Path | None, nvml_library: str | None, options: Mapping[str, Any], rows: Sequence[Override]
) -> Effective:
    """Defaults, then the file at `path`, then variables and options of the running command.

    Raises:
        UsageError: the file or a value is wrong; the message names the key.
    """
    import msgspec

    from gpuwatch.config import load_with_document, parse

    config, written = load_with_document(path)
    origins = dict.fromkeys(flat(written), f"file {path}")
    document = msgspec.to_builtins(config)
    for row, value in [*((row, options.get(row.name)) for row in rows), (NVML_LIBRARY, nvml_library)]:
        if value is None or value == ():
            continue
        if row.path in origins and value in row.ranks:
            in_file = row.ranks.index(attrgetter(row.path)(config))
            if in_file < row.ranks.index(value):  # the file grants less, and the lesser grant holds
                continue
        str(value).encode()  # a configuration is UTF-8
        *sections, key = row.path.split(".")
        section = document
        for name in sections:
            section = section[name]
        section[key] = value
        origins[row.path] = _origin(row)
    return Effective(with_known_families(parse(document, "the command line"), str(path)), origins)


def with_known_families(config: "Config", origin: str) -> "Config":
    """The configuration unchanged, if each of its patterns of metric families matches a family.

    Raises:
        UsageError: a pattern matches none; the message names the nearest family.
    """
    families = config.metrics.families
    if families.allow or families.deny:  # the tables of metrics are loaded only where families are named
        from gpuwatch.agent.pages import page_families
        from gpuwatch.metrics.selection import wrong_pattern
        from gpuwatch.model.errors import UsageError

        if wrong := wrong_pattern(config.metrics, page_families()):
            raise UsageError(f"wrong value at {wrong[0]} in {origin}", *wrong[1].split("; ", 1))
    return config


def flat(document: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Key path to value of every setting in a nested document."""
    found: dict[str, Any] = {}
    for key, value in document.items():
        nested = isinstance(value, Mapping) and value
        found |= flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return found


def _origin(row: Override) -> str:
    ctx: click.Context | None = click.get_current_context()
    while ctx is not None:
        source = ctx.get_parameter_source(row.name)
        if source is not None:
            environment = source is click.core.ParameterSource.ENVIRONMENT
            return f"env {row.variable}" if environment else f"option {row.flag}"
        ctx = ctx.parent
    return "option"
