"""Sources of Views for the commands: a running agent, the driver of this machine, a simulated node or a recording."""

import difflib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpuwatch.cli.console.session import Session
from gpuwatch.model.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.config import Backend, Config
    from gpuwatch.model.event import EventQuery
    from gpuwatch.model.view import Events, View

KINDS = ("nvml", "sim", "capture", "agent")

SAMPLES = 2
"""Some readings (GPM, rates) are differences of two samples."""

DEADLINE = 10.0

DEFAULT_SCENARIO = "healthy"


class SourceSpec(NamedTuple):
    """`--source`, parsed. `argument`: scenario, file or URL."""

    kind: str
    argument: str = ""


class OpenedSource(Protocol):
    """Gives Views and events of a node, as often as asked."""

    def view(self) -> "View":
        """The newest View."""
        ...

    def events(self, query: "EventQuery" = ...) -> "Events":
        """What happened."""
        ...


def parse_source(text: str) -> SourceSpec:
    """Read `nvml`, `sim[:SCENARIO|DIR]`, `capture:FILE[#SECTION]` or `agent[:URL]`.

    Raises:
        UsageError: it is none of these.
    """
    kind, _, argument = text.partition(":")
    if kind not in KINDS:
        near = difflib.get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]}?" if near else "use nvml, sim[:SCENARIO], capture:FILE or agent[:URL]"
        raise UsageError(f"unknown source {text!r}", "", hint)
    if kind == "capture" and not argument:
        raise UsageError("--source capture needs a file", "", "write capture:FILE")
    if kind == "nvml" and argument:
        raise UsageError(f"--source {text} takes no argument", "", "use --nvml-library PATH for another library")
    return SourceSpec(kind, argument)


@contextmanager
def open_source(session: Session, *, samples: int = SAMPLES) -> Iterator[OpenedSource]:
    """A source for as long as the block runs; the first View is there when it begins.

    Raises:
        NoGpuStack: there is no driver or no GPU, and no agent was named.
        GpuwatchError: the source does not answer.
    """
    from gpuwatch.agent.client import AgentClient, find_agent

    source = parse_source(session.source) if session.source else None
    agent = find_agent() if source is None else None
    if agent is not None:
        yield agent
    elif source is not None and source.kind == "agent":
        yield AgentClient(source.argument or None)
    else:
        from gpuwatch.agent.one_shot import OneShotCollector

        with node(source or SourceSpec("nvml"), session.config()) as started, OneShotCollector(*started) as collector:
            collector.wait(samples, DEADLINE)
            yield collector


def node(
    source: SourceSpec, config: "Config", sim_dir: str | None = None
) -> AbstractContextManager[tuple["Config", "Backend"]]:
    """The configuration and backend of a node that is not an agent's: the machine, a recording or a simulation.

    `sim_dir`: the directory of a simulation that this process starts, for other processes; None: a temporary one.
    """
    from msgspec.structs import replace

    from gpuwatch.config import Backend

    if source.kind == "nvml":
        return nullcontext((config, Backend()))
    if source.kind == "capture":
        # a recording is of another machine: this one's kernel, kubelet, processes and bus do not belong to it
        sources = replace(config.sources, disabled=("kmsg", "podresources", "procfs", "pci"))
        backend = Backend(factory="gpuwatch.sim.capture:open_capture", target=source.argument)
        return nullcontext((replace(_with_state(config, ""), sources=sources), backend))
    if source.kind == "sim":
        return _simulated(config, source.argument, sim_dir)
    raise UsageError("an agent cannot run on --source agent", "", "use nvml, sim[:SCENARIO] or capture:FILE")


@contextmanager
def _simulated(config: "Config", argument: str, sim_dir: str | None) -> Iterator[tuple["Config", "Backend"]]:
    """The node that runs already where no scenario or its directory is named; else a new one."""
    from tempfile import TemporaryDirectory

    from msgspec.structs import replace

    from gpuwatch.sim.directory import default_directory, runs
    from gpuwatch.sim.world import World

    named = Path(argument) if "/" in argument and Path(argument).is_dir() else None
    there = named or Path(sim_dir or default_directory())
    with ExitStack() as stack:
        if named or (not argument and runs(there)):
            world = World(DEFAULT_SCENARIO, there)
        else:
            place = sim_dir or stack.enter_context(TemporaryDirectory(prefix="gpuwatch-sim-"))
            world = stack.enter_context(World(argument or DEFAULT_SCENARIO, Path(place)))
        yield replace(_with_state(config, str(world.directory / "state")), sources=world.sources), world.backend


def _with_state(config: "Config", state_dir: str) -> "Config":
    """Another node than this machine keeps its state elsewhere, unless a state directory was named."""
    from msgspec.structs import replace

    usual = type(config)().state_dir
    return replace(config, state_dir=state_dir) if config.state_dir == usual else config


def is_simulated(session: Session) -> bool:
    """Whether `--source` names a simulation."""
    return session.source is not None and parse_source(session.source).kind == "sim"


def running_simulation(session: Session) -> Path:
    """The directory of the simulated node, whatever scenario it runs.

    Raises:
        NoGpuStack: no simulation runs there.
    """
    from gpuwatch.model.errors import NoGpuStack
    from gpuwatch.sim.directory import runs

    directory = _simulation_dir(session)
    if not runs(directory):
        raise NoGpuStack(
            f"no simulated node runs in {directory}", "the command changes that node", "try `gpuwatch sim run`"
        )
    return directory


def config_of_source(session: Session, config: "Config") -> "Config":
    """`config` with the state directory (unless another was named) and the /proc of the simulated node; unchanged for
    other sources. A simulation that does not run has no state directory: this machine's belongs to other GPUs.
    """
    from msgspec.structs import replace

    from gpuwatch.sim.directory import runs

    if not is_simulated(session):
        return config
    directory = _simulation_dir(session)
    state_dir = str(directory / "state") if runs(directory) else ""
    return replace(_with_state(config, state_dir), sources=replace(config.sources, proc=str(directory / "proc")))


def _simulation_dir(session: Session) -> Path:
    from gpuwatch.sim.directory import default_directory

    argument = parse_source(session.source or "sim").argument
    return Path(argument) if "/" in argument else default_directory()
