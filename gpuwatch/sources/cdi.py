"""CDI specifications: the files that tell container runtimes which device files and libraries make a GPU."""

from pathlib import Path

from gpuwatch.model.snapshot import Record


class CdiSpec(Record, frozen=True, kw_only=True):
    """One file. `nodes`: device files it hands out; `missing`: of its device files and mounts those the host lacks;
    `versions`: driver versions named by its library paths; `error`: why it is no specification.
    """

    path: str
    kind: str | None = None
    devices: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    error: str | None = None


def cdi_specs(root: Path, dev: Path) -> tuple[CdiSpec, ...]:
    """Those of NVIDIA in /etc/cdi and /var/run/cdi, broken ones included."""
    return ()
