"""Sources of Views for the commands: a running agent, the driver of this machine, a simulated node or a recording."""

import difflib
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import click
from msgspec.structs import replace

from gpuwatch.cli.console.session import Session
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.text import visible

if TYPE_CHECKING:
    from gpuwatch.agent.client import AgentClient
    from gpuwatch.config import Backend, Config
    from gpuwatch.model.event import EventQuery
    from gpuwatch.model.view import Events, View
    from gpuwatch.tuning.model.setting import Setting

KINDS = ("nvml", "sim", "capture", "agent")

SAMPLES = 2
"""Some readings (GPM, rates) are differences of two samples."""

DEADLINE = 10.0

COMPLETION_SECONDS = 1.0
"""Short, because the user waits at the prompt."""

DEFAULT_SCENARIO = "healthy"

NOWHERE = "/nonexistent"
"""A folder that no machine has."""


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
    argument.encode()  # the reader's process gets it as JSON
    return SourceSpec(kind, argument)


@contextmanager
def open_source(session: Session, *, quiet: bool = False) -> Iterator[OpenedSource]:
    """A source for as long as the block runs; the first View is there when it begins. Unless `quiet`, or the user
    named it, one line on stderr names where the View is from: the agent, or the driver.

    Raises:
        NoGpuStack: there is no driver or no GPU, and no agent was named.
        GpuwatchError: the source does not answer.
    """
    from gpuwatch.agent.client import find_agent

    source, config = parse_source(session.source) if session.source else None, session.config_or_defaults()
    search = find_agent(config.agent) if source is None else None
    agent = named_agent(source, config) if source and source.kind == "agent" else search.client if search else None
    if agent is not None:
        if not quiet and not (source and source.argument):
            session.terminal.hint(f"asked the agent at {agent.name}")
        yield agent
        return
    from gpuwatch.agent.one_shot import OneShotCollector

    if search is not None and not quiet:
        session.terminal.hint(f"read the driver: {search.message}")
    with node(source or SourceSpec("nvml"), config) as started, OneShotCollector(*started) as collector:
        collector.wait(SAMPLES, DEADLINE)
        yield collector


def named_agent(source: SourceSpec, config: "Config") -> "AgentClient":
    """The agent of `--source agent[:URL]`; without URL the one that the settings of this node name."""
    from gpuwatch.agent.client import AgentClient, agent_sockets

    url = source.argument or str(agent_sockets(config.agent)[0])
    return AgentClient(url, uid=config.agent.socket_uid)


def node(
    source: SourceSpec, config: "Config", sim_dir: str | None = None
) -> AbstractContextManager[tuple["Config", "Backend"]]:
    """The configuration and backend of a node that is read without an agent: this machine, a recording or a simulation.

    `sim_dir`: the directory of a simulation that this process starts, for other processes; None: a temporary one.
    """
    from gpuwatch.config import Backend

    if source.kind == "nvml":
        return nullcontext((config, Backend()))
    if source.kind == "capture":
        from gpuwatch.sim.capture import missing

        # a recording is of another machine: this one's kernel, kubelet, processes, bus and ids do not belong to it
        disabled = ("kmsg", "podresources", "procfs", "pci")
        sources = replace(config.sources, disabled=disabled, proc=NOWHERE, sys=NOWHERE, machine_id=NOWHERE)
        backend = Backend(
            factory="gpuwatch.sim.capture:open_capture", target=source.argument, incomplete=missing(source.argument)
        )
        return nullcontext((replace(_with_state(config, ""), sources=sources), backend))
    if source.kind == "sim":
        return _simulated(config, source.argument, sim_dir)
    raise UsageError("an agent cannot run on --source agent", "", "use nvml, sim[:SCENARIO] or capture:FILE")


@contextmanager
def _simulated(config: "Config", argument: str, sim_dir: str | None) -> Iterator[tuple["Config", "Backend"]]:
    """The simulated node that already runs, where its directory or no scenario is named; else a new one."""
    from tempfile import TemporaryDirectory

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
    """`config` with the state directory of a node other than this machine, unless another one was named."""
    usual = type(config)().state_dir
    return replace(config, state_dir=state_dir) if config.state_dir == usual else config


def recorded_settings(session: Session) -> "tuple[Setting, ...]":
    """Settings that a tuner of this machine, or of the simulated one, has made; GPUs elsewhere have no record here."""
    from gpuwatch.tuning.actuation.record import SettingsRecord

    directory = config_of_source(session, session.config_or_defaults()).state_dir
    if not directory or (session.source or "").startswith("capture:"):
        return ()
    try:
        return SettingsRecord(Path(directory)).read().settings
    except GpuwatchError as error:
        session.terminal.hint(f"hint: the settings made by gpuwatch are not known; {error}")
        return ()


def complete_names(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Completions for a shell: GPU indices and pods, as the agent of this node knows them; without an agent none. Of a
    command with a resource (`describe pod`) only names of that kind.
    """
    from gpuwatch.agent.client import find_agent
    from gpuwatch.cli.look.gather import gpu_items

    session, resource = Session(), ctx.params.get("resource")
    session.source = (ctx.find_root().params or {}).get("source")
    try:
        source, config = parse_source(session.source) if session.source else None, session.config_or_defaults()
        agent = named_agent(source, config) if source and source.kind == "agent" else None
        agent = agent or (find_agent(config.agent, COMPLETION_SECONDS).client if source is None else None)
        gpus = gpu_items(agent.view()) if agent else []
    except GpuwatchError:  # the shell shows nothing but completions
        return []
    users = [user for gpu in gpus for user in gpu.users]
    names = [str(gpu.index) for gpu in gpus] if resource not in ("pod", "job") else []
    names += [user for user in users if " " not in user] if resource not in ("gpu", "job") else []
    names += [user.removeprefix("slurm ") for user in users if user.startswith("slurm ") and resource == "job"]
    return [visible(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


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
