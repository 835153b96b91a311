"""The target of `gpuwatch diagnose`: this machine, its root mounted elsewhere, a copied tree, a simulated node."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from gpuwatch.agent.client import AgentSearch, find_agent
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.look.source import SourceSpec, named_agent, node, parse_source
from gpuwatch.config import Backend, Config
from gpuwatch.diagnose.bundling.opening import open_archive
from gpuwatch.diagnose.gathering.gather import AGENT_SECONDS, DiagnosisTarget
from gpuwatch.diagnose.places import RECORDED, Places
from gpuwatch.host.tree import beneath
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
    with ExitStack() as stack:
        if Path(root).is_file():
            place = stack.enter_context(TemporaryDirectory(prefix="gpuwatch-tree-"))
            found = open_archive(Path(root), Path(place))
            if found.message:
                session.terminal.hint(f"{root}: left out: {found.message}")
            root = str(found.top)
        elif root != "/" and not Path(root).is_dir():
            raise UsageError(f"--root {root} is no folder", "", "name the top folder of a host's files, or a bundle")
        if root != "/" and not any(beneath(Path(root), folder).is_dir() for folder in OF_A_HOST):
            why = f"it has none of {', '.join(OF_A_HOST)}"
            raise UsageError(f"--root {root} holds no host", why, "name the folder where its / is mounted or copied to")
        places = Places.of(root, config.sources, config.state_dir)
        if source is not None and source.kind in ("sim", "agent") and not places.live:
            raise UsageError(
                f"--source {source.kind} and --root {root} are two nodes", "", "give one, or --source capture:FILE"
            )
        target = stack.enter_context(_without_names(session, source, places, config))
        yield target._replace(node=node_name, kubeconfig=kubeconfig)


@contextmanager
def _without_names(
    session: Session, source: SourceSpec | None, places: Places, config: Config
) -> Iterator[DiagnosisTarget]:
    if source is None and not places.live:
        yield DiagnosisTarget(places, config)
    elif source is None or (source.kind == "nvml" and places.live):
        backend = Backend()
        if places.root != "/":  # no library of the tree is loaded unless the user names it
            config = _within(places, config)
        # the running agent has little time, because there is another way
        search = AgentSearch(None, "") if source else find_agent(config.agent, AGENT_SECONDS)
        if search.message:
            session.terminal.hint(search.message if search.client else f"read the driver: {search.message}")
        yield DiagnosisTarget(places, config, backend, search.client)
    elif source.kind == "agent":
        yield DiagnosisTarget(places, config, agent=named_agent(source, config))
    else:
        with node(source, config if places.live else _without_files(config)) as (node_config, backend):
            if source.kind == "sim":
                simulated = Places.tree(Path(backend.target))
                # its tuner keeps its record beside its other state
                places = replace(simulated, state=node_config.state_dir) if node_config.state_dir else simulated
            hidden = DRIVER_ONLY if source.kind == "capture" and places.live else ""
            yield DiagnosisTarget(places, node_config, backend, files_hidden=hidden)


def _without_files(config: Config) -> Config:
    """For a driver beside a tree: no reader but those of the diagnosis touches the tree."""
    nowhere = dict.fromkeys(("kmsg", "proc", "sys", "dev", "pod_resources", "machine_id", "pod_logs"), os.devnull)
    return replace(
        config, sources=replace(config.sources, disabled=("kmsg", "podresources", "procfs", "pci"), **nowhere)
    )


def _within(places: Places, config: Config) -> Config:
    """For a driver that is read beside files that lie elsewhere: its GPUs are those of the files."""
    sources = {name: getattr(places, name) for name in ("kmsg", "proc", "sys", "dev", "pod_resources")}
    return replace(config, sources=replace(config.sources, **sources))
