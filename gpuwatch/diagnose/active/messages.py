"""What the process that does the work is told, and what it tells: JSON, a line each."""

from gpuwatch.diagnose.active.results import DeviceRun, Test
from gpuwatch.model.snapshot import Record


class Job(Record, frozen=True, kw_only=True):
    """Tests to run on one device, or between two: `devices` are the uuids that CUDA_VISIBLE_DEVICES shows."""

    devices: tuple[str, ...]
    tests: tuple[Test, ...]
    library: str = ""  # empty: libcuda.so.1 as the loader finds it
    numa_node: int | None = None  # whose CPUs are next to the first device


class Calling(Record, frozen=True, kw_only=True, tag="calling"):
    """The driver is entered; if no other line follows, it has not come back."""

    function: str


class Done(Record, frozen=True, kw_only=True, tag="done"):
    """One test is over."""

    run: DeviceRun


Line = Calling | Done
