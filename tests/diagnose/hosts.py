"""Hosts to diagnose: a simulated healthy one as files on the disk, which tests break file by file or GPU by GPU."""

import contextlib
import fcntl
import shutil
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.agent.one_shot import OneShotCollector
from gpuwatch.config import Config
from gpuwatch.diagnose.active.results import Active
from gpuwatch.diagnose.baseline.expectation import Expectation
from gpuwatch.diagnose.check import CheckContext, Level
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.engine import diagnose
from gpuwatch.diagnose.facts import HOST_SECTIONS, NodeFacts, ViewFailure
from gpuwatch.diagnose.gathering.probe import read_section
from gpuwatch.diagnose.host.exporters import Exporter
from gpuwatch.diagnose.model import ClusterFacts, Diagnosis
from gpuwatch.diagnose.places import Places
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.view import View
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.scenario import Scenario, parse
from gpuwatch.sim.surroundings.pcitree import PciTree
from gpuwatch.sim.world import SimHostTree, World
from tests.memory import folder

SECONDS = 60.0
"""For a look at a simulated node, on a machine that is busy: one that is incomplete would break tests far away."""


class Host:
    """A host that is well. `view`, `earlier`, `cluster`, `exporters`, `active`, `config`, `expect` may be replaced;
    `unread` says why a section is None, and takes sections away that are there.
    """

    def __init__(
        self, root: Path, timeline: Iterable[dict[str, Any]] = (), workloads: Iterable[dict[str, Any]] = (), **node: Any
    ) -> None:
        """What has happened by the first second, who works there, and as in a scenario: model, gpus, driver, mig."""
        self.root, self.node = root, SimNode(_scenario(node, timeline, workloads))
        self._trees = (PciTree(root), SimHostTree(root))
        self.node.advance(1.0)
        self.show()
        self.view: View | None = seen(timeline, workloads, **node)
        self.earlier: View | None = self.view
        self.cluster: ClusterFacts | None = recorded(root / "gpuwatch/cluster.json", ClusterFacts)
        self.view_failure: ViewFailure | None = None
        self.exporters: tuple[Exporter, ...] | None = ()
        self.active: Active | None = None
        self.config, self.expect = Config(), Expectation()
        self.selected: frozenset[int] | None = None
        self.unread: dict[str, str] = {}

    def show(self) -> None:
        """Have the files follow what was done to `node`; lines of its driver come into the kernel log."""
        for tree in self._trees:
            tree.show(self.node)
        with (self.root / "gpuwatch/kernel.log").open("a") as log:
            while self.node.lines:
                line = self.node.lines.popleft()
                log.write(f"[{1000 + line.t:12.6f}] {line.text}\n")

    def write(self, path: str, text: str) -> None:
        """Put another file there."""
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.write_text(text)

    def edit(self, path: str, old: str, new: str) -> None:
        """Change a text that must be in the file."""
        text = (self.root / path).read_text()
        assert old in text, f"{path} has no {old!r}"
        self.write(path, text.replace(old, new))

    def remove(self, path: str) -> None:
        """A file or a folder that must be there."""
        target = self.root / path
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        else:
            target.unlink()

    def link(self, path: str, target: str) -> None:
        """A symbolic link."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).symlink_to(target)

    def gpu(self, index: int, **changes: Any) -> None:
        """Change members of one GPU's sample in `view`."""
        assert self.view is not None
        gpus = [replaced(g, changes) if g.identity.index == index else g for g in self.view.snapshot.gpus]
        snapshot = msgspec.structs.replace(self.view.snapshot, gpus=tuple(gpus))
        self.view = msgspec.structs.replace(self.view, snapshot=snapshot)

    def facts(self) -> NodeFacts:
        """What the real readers find there."""
        at, sections, unread = Places.tree(self.root), {}, dict(self.unread)
        for section in HOST_SECTIONS:
            if section in unread:
                continue
            try:
                sections[section] = read_section(section, at)
            except (OSError, GpuwatchError) as error:
                unread[section] = str(error)
        others = ("view", "view_failure", "earlier", "cluster", "exporters", "active")
        sections |= {name: getattr(self, name) for name in others if name not in unread}
        moment = self.view.snapshot.at if self.view else 1_790_000_000.0
        return NodeFacts(at=moment, node="gpu-node-1", root=str(self.root), plain=True, unread=unread, **sections)

    def diagnose(self, *, level: Level = "full", active: bool = False) -> Diagnosis:
        """Judged by the whole table."""
        case = CheckContext(self.facts(), self.config, self.expect, self.selected)
        found = diagnose(case, CHECKS, level=level, active=active)
        assert [r for r in found.results if "the check itself failed" in r.message] == []
        return found


def replaced(gpu: Gpu, changes: dict[str, Any]) -> Gpu:
    """`{"ecc": {"pending": True}}` changes a member of a member; anything but a mapping replaces."""
    new = {
        name: msgspec.structs.replace(getattr(gpu, name), **value)
        if isinstance(value, dict) and isinstance(getattr(gpu, name), msgspec.Struct)
        else value
        for name, value in changes.items()
    }
    return msgspec.structs.replace(gpu, **new)


def seen(timeline: Iterable[dict[str, Any]] = (), workloads: Iterable[dict[str, Any]] = (), **node: Any) -> View:
    """The View of a simulated node, through the real reader; each is looked at once in a test run, by whichever of
    its processes asks first.
    """
    text = msgspec.json.encode((list(timeline), list(workloads), node)).decode()
    return _seen(text)


def share_views(folder: Path) -> None:
    """Where the processes of this test run keep what was seen."""
    global _shared
    folder.mkdir(exist_ok=True)
    _shared = folder


_shared: Path | None = None


@cache
def _seen(text: str) -> View:
    if _shared is None:
        return _decoded(text)
    file = _shared / f"{sha256(text.encode()).hexdigest()[:24]}.json"
    with file.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not file.exists():
            part = file.with_suffix(".part")
            part.write_bytes(msgspec.json.encode(_decoded(text)))
            part.replace(file)
    return msgspec.json.decode(file.read_bytes(), type=View)


def _decoded(text: str) -> View:
    timeline, workloads, node = msgspec.json.decode(text)
    scenario = _scenario(node, timeline, workloads)
    after = SimNode(scenario)
    after.advance(1.0)
    with folder() as place, World(scenario, place) as world:
        config = msgspec.structs.replace(Config(), sources=world.sources, state_dir=f"{place}/state")
        for settle in (5.0, 20.0, SECONDS):  # on a busy machine a GPU may need longer to tell who it is
            with OneShotCollector(config, world.backend, settle=settle) as look:
                with contextlib.suppress(GpuwatchError):  # without a driver there is a View all the same
                    look.wait(2, 2 * SECONDS)
                view = look.view()
            if is_whole(view, after):
                return view
    raise AssertionError("the machine was too busy to look at a simulated node")


def is_whole(view: View, node: SimNode) -> bool:
    """Every GPU that can has told a sample, the others why there is none; without NVML, why there is none."""
    nvml = next(source for source in view.snapshot.sources if source.name == "nvml")
    if not nvml.up:
        return bool(nvml.reason)
    answering = [gpu for gpu in node.gpus if not (gpu.faults.lost or gpu.faults.off_bus or gpu.faults.hung)]
    sampled = {gpu.identity.index for gpu in view.snapshot.gpus}
    is_complete = all(status.detail or status.identity.index in sampled for status in view.snapshot.statuses)
    return is_complete and len(sampled) >= len(answering)


def _scenario(node: dict[str, Any], timeline: Iterable[Any] = (), workloads: Iterable[Any] = ()) -> Scenario:
    document = {"description": "a test", "node": node, "timeline": list(timeline), "workloads": list(workloads)}
    document["node"] = {"model": "h100", "gpus": 8} | node
    if "mig" in node:
        document["node"]["mig"] = {int(index): profiles for index, profiles in node["mig"].items()}
    return parse(document, "test")


def recorded(path: Path, type_: Any) -> Any:
    """A file of the recording, None where there is none."""
    return msgspec.json.decode(path.read_bytes(), type=type_) if path.exists() else None
