"""Where the files of the diagnosed host are: this machine, its root mounted elsewhere, a copied tree, a simulation."""

from pathlib import Path

from msgspec.structs import replace

from gpuwatch.config import SourcesConfig
from gpuwatch.diagnose.gathering.recorded import recorded
from gpuwatch.host.machine import boot_id_file, first_line, in_pod
from gpuwatch.model.snapshot import Record

RECORDED = "gpuwatch"
"""Folder of a recorded tree with what is no file of the host: view.json, cluster.json, ..."""

HIDDEN = "the host's files cannot be seen from this container; run on the host, or mount its / and name it with --root"


class Places(Record, frozen=True, kw_only=True):
    """Paths as text, so that they can be handed to another process.

    `live`: sockets and ports there can be asked; else there are only files. `plain`: device files are plain ones,
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
        """This machine (`/`), or the tree below `root`; a root with our own boot id is our own."""
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
        base = Path(root)
        boot_id = first_line(boot_id_file(base / "proc"))
        if boot_id is not None and boot_id == first_line(boot_id_file(Path(sources.proc))):
            return replace(cls.tree(base), kmsg=own.kmsg, live=True, plain=False)
        return cls.tree(base)

    @classmethod
    def tree(cls, base: Path) -> "Places":
        """A host of which there is nothing but files."""
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
            plain=recorded(base / RECORDED).plain,
        )

    def at(self, path: str) -> Path:
        """A file of the host by its absolute path there; /proc, /sys and /dev have members of their own."""
        return Path(self.root) / path.lstrip("/")

    @property
    def recorded(self) -> Path:
        """Where a recorded tree keeps what is no file of the host."""
        return Path(self.root) / RECORDED
