"""Where Look commands look: a running agent, the driver of this machine, a simulated node or a recording."""

import difflib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, NamedTuple, Protocol

from gpuwatch.cli.session import Session
from gpuwatch.model.errors import UsageError

if TYPE_CHECKING:
    from gpuwatch.config import Backend, Config
    from gpuwatch.model.view import Events, View

KINDS = ("nvml", "sim", "capture", "agent")

SAMPLES = 2
"""Some readings (GPM, rates) are differences of two samples."""

DEADLINE = 10.0


class Source(NamedTuple):
    """`--source`, read. `argument`: scenario, file or URL."""

    kind: str
    argument: str = ""


class Looking(Protocol):
    """Somebody who can tell how the node is, as often as asked."""

    def view(self) -> "View":
        """The newest View."""
        ...

    def events(self) -> "Events":
        """What happened lately."""
        ...


def parse_source(text: str) -> Source:
    """Read `nvml`, `sim[:SCENARIO]`, `capture:FILE[#SECTION]` or `agent[:URL]`.

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
    return Source(kind, argument)


@contextmanager
def looking(session: Session, *, samples: int = SAMPLES) -> Iterator[Looking]:
    """Somebody to ask, for as long as the block runs; the first View is there when it begins.

    Raises:
        NoGpuStack: there is no driver or no GPU, and no agent was named.
        GpuwatchError: nobody answers.
    """
    from gpuwatch.roles.client import AgentClient, find_agent

    source = parse_source(session.source) if session.source else None
    agent = find_agent() if source is None else None
    if agent is not None:
        yield agent
    elif source is not None and source.kind == "agent":
        yield AgentClient(source.argument or None)
    else:
        from gpuwatch.roles.look import Look

        with node(source or Source("nvml"), session.config()) as (config, backend), Look(config, backend) as look:
            look.wait(samples, DEADLINE)
            yield look


def one_view(session: Session) -> "View":
    """The node as it is now."""
    with looking(session) as somebody:
        return somebody.view()


def node(
    source: Source, config: "Config", sim_dir: str | None = None
) -> AbstractContextManager[tuple["Config", "Backend"]]:
    """The configuration and backend of a node that is not an agent's: the machine, a recording or a simulation.

    `sim_dir`: where a simulation lives, so that others can reach it; None: a place of its own.
    """
    from gpuwatch.config import Backend

    if source.kind == "nvml":
        return nullcontext((config, Backend()))
    if source.kind == "capture":
        return nullcontext(_recorded(config, source.argument))
    if source.kind == "sim":
        return _simulated(config, source.argument or "healthy", sim_dir)
    raise UsageError("an agent cannot run on --source agent", "", "use nvml, sim[:SCENARIO] or capture:FILE")


def _recorded(config: "Config", target: str) -> tuple["Config", "Backend"]:
    """A recording is of another machine: this one's kernel, kubelet, processes and bus have nothing to do with it."""
    from msgspec.structs import replace

    from gpuwatch.config import Backend

    sources = replace(config.sources, disabled=("kmsg", "podresources", "procfs", "pci"))
    return replace(config, sources=sources), Backend(factory="gpuwatch.sim.capture:open_capture", target=target)


@contextmanager
def _simulated(config: "Config", scenario: str, directory: str | None) -> Iterator[tuple["Config", "Backend"]]:
    from pathlib import Path
    from tempfile import TemporaryDirectory

    from msgspec.structs import replace

    from gpuwatch.sim.world import World

    with TemporaryDirectory(prefix="gpuwatch-sim-") if directory is None else nullcontext(directory) as place:
        world = World(scenario, Path(place))
        world.start()
        try:
            yield replace(config, sources=world.sources), world.backend
        finally:
            world.stop()
