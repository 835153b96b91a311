"""The simulated node that `--source sim` names, for commands that change it: it must run, and has files of its own."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.cli.console.session import Session
from gpuwatch.cli.look.source import parse_source

if TYPE_CHECKING:
    from gpuwatch.config import Config


def is_simulated(session: Session) -> bool:
    """Whether `--source` names a simulation."""
    return session.source is not None and parse_source(session.source).kind == "sim"


def running(session: Session) -> Path:
    """The directory of the node; of `sim:SCENARIO` only the machine counts, whatever scenario it runs.

    Raises:
        NoGpuStack: none runs there.
    """
    from gpuwatch.model.errors import NoGpuStack
    from gpuwatch.sim.directory import runs

    place = _place(session)
    if not runs(place):
        raise NoGpuStack(
            f"no simulated node runs in {place}", "its knobs are those of a node", "try `gpuwatch sim run`"
        )
    return place


def aimed(session: Session, config: "Config") -> "Config":
    """Its state directory, unless another was named, and its /proc; the configuration as it is for other sources.

    Where no node runs there is no state directory: that of this machine has nothing to do with it.
    """
    from msgspec.structs import replace

    from gpuwatch.sim.directory import runs

    if not is_simulated(session):
        return config
    place, usual = _place(session), type(config)().state_dir
    state_dir = str(place / "state") if runs(place) else ""
    return replace(
        config,
        state_dir=state_dir if config.state_dir == usual else config.state_dir,
        sources=replace(config.sources, proc=str(place / "proc")),
    )


def _place(session: Session) -> Path:
    from gpuwatch.sim.directory import default_directory

    argument = parse_source(session.source or "sim").argument
    return Path(argument) if "/" in argument else default_directory()
