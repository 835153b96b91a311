"""The process that runs the active checks: `python -m gpuwatch.diagnose.active.child JOB`, with CUDA_VISIBLE_DEVICES.

Its parent may send SIGTERM; it then releases its resources and ends as soon as it is in no call of the driver. A
process that is killed inside a call can wedge the GPU.
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
from gpuwatch.diagnose.active.libcuda import RELEASING, Cuda, CudaError
from gpuwatch.diagnose.active.results import ChildMessage, DeviceRun, DriverCall, Job, RunEnded, Test
from gpuwatch.model.decoding import prepared

WORK: dict[Test, Callable[[Cuda], dict[str, Any]]] = {
    "vector_add": work.vector_add,
    "bandwidth": work.bandwidth,
    "memory": work.memory,
    "peer": work.peer,
}


def main() -> None:
    """Run the job of the command line, and report on stdout."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both; the parent ends this one
    asked_to_leave: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked_to_leave.append(number))
    job = msgspec.json.decode(sys.argv[1], type=prepared(Job))
    # leave no core dump of gigabytes, and be the first process that the kernel ends when memory is short
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    with suppress(OSError, ValueError):  # on CPUs far from the device, copies measure the link between CPUs, too
        text = Path(f"/sys/devices/system/node/node{job.numa_node}/cpulist").read_text(encoding="ascii")
        ranges = (part.partition("-") for part in text.strip().split(","))
        os.sched_setaffinity(0, {cpu for first, _, last in ranges for cpu in range(int(first), int(last or first) + 1)})
    pipe = os.dup(sys.stdout.fileno())  # so that the driver's library cannot print into it
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def send(message: ChildMessage) -> None:
        # Not in the signal's handler: between a call that allocates and its `with`, the resource would leak.
        if asked_to_leave and not (isinstance(message, DriverCall) and message.function in RELEASING):
            sys.exit(128 + asked_to_leave[0])
        with suppress(BrokenPipeError):  # the parent has ended; the rest of the work is short, and releases its memory
            os.write(pipe, msgspec.json.encode(message) + b"\n")

    run(job, send)


def run(job: Job, send: Callable[[ChildMessage], None]) -> None:
    """Run the tests in order; if the first fails, the rest is left out, because each relies on it."""
    try:
        cuda = Cuda(job.library, lambda function: send(DriverCall(function=function)))
        count = cuda.start()
        if count != len(job.devices):
            raise work.WrongResult(f"CUDA shows {count} devices where {len(job.devices)} should be visible")
        for ordinal, wanted in enumerate(job.devices):
            uuid = cuda.uuid(ordinal)
            if uuid != wanted.split("-", 1)[1].lower():
                raise work.WrongResult(f"CUDA gave another device: {uuid} in place of {wanted}")
    except OSError as error:
        failed = DeviceRun(test=job.tests[0], device=job.devices[0], error=str(error), fault="library")
        send(RunEnded(run=failed))
        return
    except (CudaError, work.WrongResult) as error:
        send(RunEnded(run=_failure(job, job.tests[0], error)))
        return
    for test in job.tests:
        started = time.monotonic()
        try:
            measured = WORK[test](cuda)
            seconds = time.monotonic() - started
            ended = DeviceRun(test=test, device=job.devices[0], seconds=seconds, **measured)
        except work.NotTried as error:
            ended = DeviceRun(test=test, device=job.devices[0], refused=str(error))
        except (CudaError, work.WrongResult) as error:
            ended = _failure(job, test, error)
        send(RunEnded(run=ended))
        if ended.error and test == job.tests[0]:
            return


def _failure(job: Job, test: Test, error: CudaError | work.WrongResult) -> DeviceRun:
    run = DeviceRun(test=test, device=job.devices[0], error=str(error), fault="wrong")
    if isinstance(error, CudaError):
        return msgspec.structs.replace(run, fault="cuda", code=error.code, function=error.function)
    return run


if __name__ == "__main__":
    main()
