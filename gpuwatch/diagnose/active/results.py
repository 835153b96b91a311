"""What the active checks measured."""

from gpuwatch.model.snapshot import Record


class DeviceRun(Record, frozen=True, kw_only=True):
    """One piece of work on one device (`device`: uuid of a GPU or a MIG instance; `peer`: the other one of a copy).

    `test`: vector_add | bandwidth | memory | peer; `error`: what went wrong, None when all was well; `code`: CUresult;
    `refused`: why it was not tried (the GPU is in use, no memory is free).
    """

    test: str
    device: str
    index: int | None = None
    peer: int | None = None
    error: str | None = None
    code: int | None = None
    refused: str | None = None
    host_to_device: float | None = None  # bytes per second
    device_to_host: float | None = None
    peer_bandwidth: float | None = None
    bytes: int | None = None
    seconds: float | None = None


class Active(Record, frozen=True, kw_only=True):
    """Everything that was run. `dcgm`: failures of `dcgmi diag -r 1` by plugin, None where it is not installed."""

    runs: tuple[DeviceRun, ...] = ()
    dcgm: dict[str, str] | None = None
    dcgm_error: str | None = None
