"""What `gpuwatch diagnose` looks at: this machine, its root mounted elsewhere, a copied tree, a simulated node."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.agent.client import AgentClient, find_agent
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.look.source import Source, node, parse_source
from gpuwatch.config import Backend, Config
from gpuwatch.diagnose.gathering.gather import AGENT_SECONDS, Ground
from gpuwatch.diagnose.host.driver_root import library
from gpuwatch.diagnose.places import RECORDED, Places
from gpuwatch.model.errors import UsageError

OF_A_HOST = ("etc", "proc", "sys", "usr", "lib", RECORDED)
"""Of a mounted or copied root at least one is there."""

DRIVER_ONLY = "a capture records the driver alone; name a copy of the host's files with --root"


@contextmanager
def ground(session: Session, root: str, node_name: str, kubeconfig: str) -> Iterator[Ground]:
    """What the options name, for as long as the block runs: a simulation ends with it.

    Raises:
        UsageError: source and root do not go together, or there is no such root.
    """
    source = parse_source(session.source) if session.source else None
    config = session.config()
    if root != "/" and not Path(root).is_dir():
        raise UsageError(f"--root {root} is no folder", "", "name the top folder of a host's files")
    if root != "/" and not any((Path(root) / folder).is_dir() for folder in OF_A_HOST):
        why = f"it has none of {', '.join(OF_A_HOST)}"
        raise UsageError(f"--root {root} holds no host", why, "name the folder that its / was mounted at or copied to")
    places = Places.of(root, config.sources, config.state_dir)
    if source is not None and source.kind in ("sim", "agent") and not places.live:
        raise UsageError(
            f"--source {source.kind} and --root {root} are two nodes", "", "give one, or --source capture:FILE"
        )
    with _looked_at(source, places, config) as found:
        yield found._replace(node=node_name, kubeconfig=kubeconfig)


@contextmanager
def _looked_at(source: Source | None, places: Places, config: Config) -> Iterator[Ground]:
    if source is None and not places.live:
        yield Ground(places, config)
    elif source is None or (source.kind == "nvml" and places.live):
        yield _own(places, config)._replace(agent=None if source else _found())
    elif source.kind == "agent":
        yield Ground(places, config, agent=AgentClient(source.argument or None))
    else:
        with node(source, config if places.live else _within(places, config)) as (looked_at, backend):
            there = _simulated(backend, looked_at) if source.kind == "sim" else places
            blind = DRIVER_ONLY if source.kind == "capture" and places.live else ""
            yield Ground(there, looked_at, backend, blind=blind)


def _simulated(backend: Backend, config: Config) -> Places:
    """Its tuner keeps its record where its other state is."""
    there = Places.tree(Path(backend.target))
    return replace(there, state=config.state_dir) if config.state_dir else there


def _own(places: Places, config: Config) -> Ground:
    """This machine; with its own library, where its files lie elsewhere than ours."""
    if places.root == "/":
        return Ground(places, config, Backend())
    own = None if config.sources.nvml_library else library(Path(places.root))
    return Ground(places, _within(places, config), Backend(target=str(own or "")))


def _within(places: Places, config: Config) -> Config:
    """For a driver that is looked at beside files that lie elsewhere: its GPUs are those of the files."""
    sources = {name: getattr(places, name) for name in ("kmsg", "proc", "sys", "dev", "pod_resources")}
    return replace(config, sources=replace(config.sources, **sources))


def _found() -> AgentClient | None:
    """The agent of this node; it has little time, for there is another way."""
    agent = find_agent()
    return AgentClient(agent.name, timeout=AGENT_SECONDS) if agent else None
