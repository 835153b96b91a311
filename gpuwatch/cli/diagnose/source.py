"""The target of `gpuwatch diagnose`: this machine, its root mounted elsewhere, a copied tree, a simulated node."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.agent.client import AgentClient, find_agent
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.look.source import SourceSpec, node, parse_source
from gpuwatch.config import Backend, Config
from gpuwatch.diagnose.gathering.gather import AGENT_SECONDS, DiagnosisTarget
from gpuwatch.diagnose.host.driver_files import library
from gpuwatch.diagnose.places import RECORDED, Places
from gpuwatch.model.errors import UsageError

OF_A_HOST = ("etc", "proc", "sys", "usr", "lib", RECORDED)
"""A mounted or copied root has at least one of them."""

DRIVER_ONLY = "a capture records the driver alone; name a copy of the host's files with --root"


@contextmanager
def diagnosis_target(session: Session, root: str, node_name: str, kubeconfig: str) -> Iterator[DiagnosisTarget]:
    """The target that the options name, for as long as the block runs: a simulation ends with it.

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
    with _without_names(source, places, config) as found:
        yield found._replace(node=node_name, kubeconfig=kubeconfig)


@contextmanager
def _without_names(source: SourceSpec | None, places: Places, config: Config) -> Iterator[DiagnosisTarget]:
    if source is None and not places.live:
        yield DiagnosisTarget(places, config)
    elif source is None or (source.kind == "nvml" and places.live):
        backend = Backend()
        if places.root != "/":  # the host's own library, beside the host's files
            own = None if config.sources.nvml_library else library(Path(places.root))
            config, backend = _within(places, config), Backend(target=str(own or ""))
        # the running agent has little time, because there is another way
        found = None if source else find_agent()
        agent = AgentClient(found.name, timeout=AGENT_SECONDS) if found else None
        yield DiagnosisTarget(places, config, backend, agent)
    elif source.kind == "agent":
        yield DiagnosisTarget(places, config, agent=AgentClient(source.argument or None))
    else:
        with node(source, config if places.live else _within(places, config)) as (node_config, backend):
            if source.kind == "sim":
                simulated = Places.tree(Path(backend.target))
                # its tuner keeps its record beside its other state
                places = replace(simulated, state=node_config.state_dir) if node_config.state_dir else simulated
            hidden = DRIVER_ONLY if source.kind == "capture" and places.live else ""
            yield DiagnosisTarget(places, node_config, backend, files_hidden=hidden)


def _within(places: Places, config: Config) -> Config:
    """For a driver that is read beside files that lie elsewhere: its GPUs are those of the files."""
    sources = {name: getattr(places, name) for name in ("kmsg", "proc", "sys", "dev", "pod_resources")}
    return replace(config, sources=replace(config.sources, **sources))
