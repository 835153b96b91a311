"""What the active checks measured."""

from typing import Literal

from gpuwatch.model.snapshot import Record

Test = Literal["vector_add", "bandwidth", "memory", "peer"]

Fault = Literal["library", "cuda", "wrong", "hang", "crash"]
"""library: libcuda.so.1 cannot be loaded; cuda: a call answered with an error; wrong: the GPU did not do what it was
told; hang: a call did not return; crash: the process of the check died or could not be started.
"""


class DeviceRun(Record, frozen=True, kw_only=True):
    """One piece of work on one device (`device`: uuid of a GPU or a MIG instance; `peer`: the other GPU of a copy).

    `test`: vector_add | bandwidth | memory | peer; `error`: what went wrong, None when all was well; `fault`: of which
    kind; `code`: CUresult; `function`: the call of the driver it was in; `refused`: why it was not tried (the GPU is in
    use, no memory is free).
    """

    test: Test
    device: str
    index: int | None = None  # NVML's
    peer: int | None = None
    error: str | None = None
    fault: Fault | None = None
    code: int | None = None
    function: str | None = None
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
