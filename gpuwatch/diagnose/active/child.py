"""The process that does the work: `python -m gpuwatch.diagnose.active JOB`, with CUDA_VISIBLE_DEVICES set.

Whoever started it may send SIGTERM; it then gives back what it has and goes as soon as it is in no call of the driver.
A process that is ended inside one can wedge the GPU.
"""

import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.diagnose.active import work
from gpuwatch.diagnose.active.libcuda import GIVING_BACK, Cuda, CudaError
from gpuwatch.diagnose.active.messages import Calling, Done, Job, Line
from gpuwatch.diagnose.active.results import DeviceRun, Test

WORK: dict[Test, Callable[[Cuda], dict[str, Any]]] = {
    "vector_add": work.vector_add,
    "bandwidth": work.bandwidth,
    "memory": work.memory,
    "peer": work.peer,
}


def main() -> None:
    """Run the job of the command line, and tell on stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both; the parent ends this one
    asked_to_leave: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_leave.append(number))
    job = msgspec.json.decode(sys.argv[1], type=Job)
    _spare_others()
    _move_next_to(job.numa_node)
    pipe = _private_stdout()

    def tell(line: Line) -> None:
        # Not in the signal's handler: between a call that allocates and its `with`, something would be lost.
        if asked_to_leave and not (isinstance(line, Calling) and line.function in GIVING_BACK):
            sys.exit(128 + asked_to_leave[0])
        _write(pipe, line)

    run(job, tell)


def run(job: Job, tell: Callable[[Line], None]) -> None:
    """The tests in order; if the first fails the rest is left out, for each stands on it."""
    try:
        cuda = _started(job, lambda function: tell(Calling(function=function)))
    except OSError as error:
        tell(Done(run=DeviceRun(test=job.tests[0], device=job.devices[0], error=str(error), fault="library")))
        return
    except (CudaError, work.WrongResult) as error:
        tell(Done(run=_failure(job, job.tests[0], error)))
        return
    for test in job.tests:
        ended = _tried(job, test, cuda)
        tell(Done(run=ended))
        if ended.error and test == job.tests[0]:
            return


def _started(job: Job, calling: Callable[[str], None]) -> Cuda:
    cuda = Cuda(job.library, calling)
    count = cuda.start()
    if count != len(job.devices):
        raise work.WrongResult(f"CUDA shows {count} devices where {len(job.devices)} should be visible")
    for ordinal, wanted in enumerate(job.devices):
        uuid = cuda.uuid(ordinal)
        if uuid != wanted.split("-", 1)[1].lower():
            raise work.WrongResult(f"CUDA gave another device: {uuid} in place of {wanted}")
    return cuda


def _tried(job: Job, test: Test, cuda: Cuda) -> DeviceRun:
    started = time.monotonic()
    try:
        measured = WORK[test](cuda)
    except work.NotTried as error:
        return DeviceRun(test=test, device=job.devices[0], refused=str(error))
    except (CudaError, work.WrongResult) as error:
        return _failure(job, test, error)
    return DeviceRun(test=test, device=job.devices[0], seconds=time.monotonic() - started, **measured)


def _failure(job: Job, test: Test, error: CudaError | work.WrongResult) -> DeviceRun:
    run = DeviceRun(test=test, device=job.devices[0], error=str(error), fault="wrong")
    if isinstance(error, CudaError):
        return msgspec.structs.replace(run, fault="cuda", code=error.code, function=error.function)
    return run


def _spare_others() -> None:
    """Leave no core of gigabytes, and be the first to go when the host is short of memory."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def _move_next_to(numa_node: int | None) -> None:
    """Run where pinned memory is near the device; elsewhere copies measure the way between the CPUs, too."""
    with suppress(OSError, ValueError):
        text = Path(f"/sys/devices/system/node/node{numa_node}/cpulist").read_text(encoding="ascii")
        ranges = (part.partition("-") for part in text.strip().split(","))
        os.sched_setaffinity(0, {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)})


def _private_stdout() -> int:
    """The pipe to the parent, out of reach of whatever the driver's library prints."""
    pipe = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return pipe


def _write(pipe: int, line: Line) -> None:
    with suppress(BrokenPipeError):  # nobody listens any more; what is left of the work is short, and ends it well
        os.write(pipe, msgspec.json.encode(line) + b"\n")
