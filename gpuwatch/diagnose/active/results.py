"""The results of the active checks, and the messages between the process that runs them and its parent."""

from typing import Literal

from gpuwatch.model.snapshot import Record

Test = Literal["vector_add", "bandwidth", "memory", "peer"]

Fault = Literal["library", "cuda", "wrong", "hang", "crash"]
"""library: libcuda.so.1 cannot be loaded; cuda: a call returned an error; wrong: the GPU computed a wrong result; hang:
a call did not return; crash: the process of the check died or could not be started.
"""


class DeviceRun(Record, frozen=True, kw_only=True):
    """One test on one device (`device`: uuid of a GPU or a MIG instance; `peer`: the other GPU of a copy).

    `error`: None unless it failed; `fault`: its kind; `code`: CUresult; `function`: the call of the driver it was in;
    `refused`: why it was not tried (the GPU is in use, no memory is free).
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
    """All runs."""

    runs: tuple[DeviceRun, ...] = ()


class Job(Record, frozen=True, kw_only=True):
    """The argument of the process, as JSON: tests to run on one device, or between two. `devices`: the uuids that
    CUDA_VISIBLE_DEVICES shows.
    """

    devices: tuple[str, ...]
    tests: tuple[Test, ...]
    library: str = ""  # empty: libcuda.so.1 as the loader finds it
    numa_node: int | None = None  # its CPUs are next to the first device


class DriverCall(Record, frozen=True, kw_only=True, tag="calling"):
    """A call of the driver begins; without a further message, it has not returned."""

    function: str


class RunEnded(Record, frozen=True, kw_only=True, tag="done"):
    """One test has ended."""

    run: DeviceRun


ChildMessage = DriverCall | RunEnded
"""JSON, one message per line."""
