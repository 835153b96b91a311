"""Where the files of the diagnosed host are: this machine, its root mounted elsewhere, a copied tree, a simulation.

A tree is data: its paths are resolved beneath its root (`gpuwatch.host.tree`), and nothing of it is loaded or run. It
counts as this machine only where the kernel's own /proc and /sys are mounted in it.
"""

from pathlib import Path

from msgspec.structs import replace

from gpuwatch.config import SourcesConfig
from gpuwatch.diagnose.gathering.recorded import recorded
from gpuwatch.host.machine import in_pod
from gpuwatch.host.tree import PROC, SYSFS, beneath, mounted, place
from gpuwatch.model.snapshot import Record

RECORDED = "gpuwatch"
"""Folder of a recorded tree for all that is no file of the host: view.json, cluster.json, ..."""

HIDDEN = "the host's files cannot be seen from this container; run on the host, or mount its / and name it with --root"


class Places(Record, frozen=True, kw_only=True):
    """Paths as text, so that they can be passed to another process.

    `live`: sockets and ports there can be queried; else there are only files. `plain`: device files are plain ones,
    as in a recording or a simulation. `hidden`: this is a container that has the host's /proc, /sys and /dev at best,
    but not its other files.
    """

    root: str = "/"
    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    pod_resources: str = "/var/lib/kubelet/pod-resources/kubelet.sock"
    kmsg: str = "/dev/kmsg"
    machine_id: str = "/etc/machine-id"
    state: str = "/var/lib/gpuwatch"
    live: bool = True
    plain: bool = False
    hidden: bool = False

    @classmethod
    def of(cls, root: str, sources: SourcesConfig, state: str) -> "Places":
        """This machine (`/`), or the tree below `root`; one in which this kernel's /proc and /sys are mounted is this
        machine's own. No file of a tree can prove that: its author chose the content."""
        own = cls(
            proc=sources.proc,
            sys=sources.sys,
            dev=sources.dev,
            pod_resources=sources.pod_resources,
            kmsg=sources.kmsg,
            machine_id=sources.machine_id,
            state=state,
            hidden=in_pod(),
        )
        if root == "/":
            return own
        tree = cls.tree(Path(root))
        if (mounted(tree.path(tree.proc)), mounted(tree.path(tree.sys))) != (PROC, SYSFS):
            return tree
        kubelet = place(tree.path(tree.root), "/var/lib/kubelet/pod-resources/kubelet.sock")
        socket = str(kubelet) if kubelet else tree.pod_resources
        return replace(tree, pod_resources=socket, kmsg=own.kmsg, live=True, plain=False)

    @classmethod
    def tree(cls, base: Path) -> "Places":
        """A host of which only files are available."""
        return cls(
            root=str(base),
            proc=str(base / "proc"),
            sys=str(base / "sys"),
            dev=str(base / "dev"),
            pod_resources=str(base / "var/lib/kubelet/pod-resources/kubelet.sock"),
            kmsg=str(base / "dev/kmsg"),
            machine_id=str(base / "etc/machine-id"),
            state=str(base / "var/lib/gpuwatch"),
            live=False,
            plain=recorded(beneath(base, RECORDED)).plain,
        )

    def at(self, path: str) -> Path:
        """The host's file at this absolute path of it; /proc, /sys and /dev have members of their own."""
        return beneath(Path(self.root), path)

    def path(self, path: str) -> Path:
        """A member of this record as a path to read: beneath the root, unless it lies elsewhere on this machine."""
        root = Path(self.root)
        return beneath(root, str(Path(path).relative_to(root))) if Path(path).is_relative_to(root) else Path(path)

    @property
    def recorded(self) -> Path:
        """The folder of a recorded tree for all that is no file of the host."""
        return self.at(RECORDED)
