"""What `gpuwatch diagnose` looks at: this machine, its root mounted elsewhere, a copied tree, a simulated node."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.cli.session import Session
from gpuwatch.cli.source import Source, node, parse_source
from gpuwatch.config import Backend, Config
from gpuwatch.diagnose.gather import AGENT_SECONDS, Ground
from gpuwatch.diagnose.places import Places
from gpuwatch.model.errors import UsageError
from gpuwatch.roles.client import AgentClient, find_agent

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
    places = Places.of(root, config.sources, config.state_dir)
    if source is not None and source.kind in ("sim", "agent") and not places.live:
        raise UsageError(
            f"--source {source.kind} and --root {root} are two nodes", "", "give one, or --source capture:FILE"
        )
    kind = source.kind if source else ""
    if kind == "agent" or (source is None and places.live):
        yield _asking(source, places, config)._replace(node=node_name, kubeconfig=kubeconfig)
        return
    if source is None:
        yield Ground(places, config, node=node_name, kubeconfig=kubeconfig)
        return
    with node(source, config if places.live else _within(places, config)) as (looked_at, backend):
        if kind == "sim":
            places = Places.tree(Path(backend.target))
        blind = DRIVER_ONLY if kind == "capture" and root == "/" else ""
        yield Ground(places, looked_at, backend, blind=blind, node=node_name, kubeconfig=kubeconfig)


def _within(places: Places, config: Config) -> Config:
    """For a driver that is looked at beside a tree of files: its GPUs are those of the tree."""
    sources = {name: getattr(places, name) for name in ("kmsg", "proc", "sys", "dev", "pod_resources")}
    return replace(config, sources=replace(config.sources, **sources))


def _asking(source: Source | None, places: Places, config: Config) -> Ground:
    """This machine: of the agent that was named, or of one that is found and otherwise of the driver."""
    if source is not None:
        return Ground(places, config, agent=AgentClient(source.argument or None))
    found = find_agent()
    agent = AgentClient(found.name, timeout=AGENT_SECONDS) if found else None
    return Ground(places, config, Backend(), agent)
