"""Keeps one GPU busy with a kernel of known work: `python -m tests.gpu.campaign.load KERNEL SECONDS SHARE`.

CUDA_VISIBLE_DEVICES names the GPU. Every quarter of a second a line of JSON tells what has been done so far. It ends
after SECONDS, at SIGTERM or when stdin closes, always between two launches, and returns what it took.
"""

import contextlib
import ctypes
import json
import select
import signal
import sys
import time
from collections.abc import Iterator
from ctypes import byref, c_char_p, c_int, c_uint, c_uint32, c_uint64, c_void_p

from gpuwatch.diagnose.active.libcuda import LIBRARY, Context, Cuda, CudaError, opened
from tests.gpu.campaign.kernels import KERNELS, Kernel

BUFFER_BYTES = 1 << 30
"""Far more than any L2 cache holds."""

LAUNCH_SECONDS = 0.03
"""Long against the gap between two launches, short against the time a process may take to end."""

REPORT_SECONDS = 0.25
MULTIPROCESSOR_COUNT = 16  # CUdevice_attribute


def main() -> None:
    """Run the kernel of the command line."""
    kernel, seconds, share = KERNELS[sys.argv[1]], float(sys.argv[2]), float(sys.argv[3])
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    cuda = Cuda()
    cuda.start()
    processors = _attribute(cuda, MULTIPROCESSOR_COUNT)
    with opened(cuda, 0) as context:
        size = min(BUFFER_BYTES, context.free() // 4) >> 20 << 20
        with context.memory(size) as one, context.memory(size) as other, _function(context, kernel) as function:
            blocks = max(1, round(processors * (1 if share < 1 else kernel.most_blocks) * share))
            launch = _Launch(context, kernel, function, blocks, (one, other), size)
            _say(event="ready", processors=processors, blocks=blocks, allocated=2 * size)
            until, said = time.monotonic() + seconds, 0.0
            while not ended and time.monotonic() < until and not _closed():
                launch.run()
                if time.monotonic() - said >= REPORT_SECONDS:
                    said = time.monotonic()
                    _say(event="work", at=said, busy=launch.busy, flops=launch.flops, bytes=launch.bytes)
    _say(event="end")


class _Launch:
    """One kernel with its arguments; what it has done so far. The number of turns is adapted to LAUNCH_SECONDS."""

    def __init__(
        self, context: Context, kernel: Kernel, function: c_void_p, blocks: int, buffers: tuple[int, int], size: int
    ) -> None:
        self._context, self._kernel, self._function = context, kernel, function
        self._blocks, self._buffers = blocks, buffers
        self._threads = blocks * kernel.threads
        self._rounds, self._repeats = 256, 1
        if kernel.bytes:
            self._rounds = max(1, size // (self._threads * kernel.bytes // 2))
        self.busy = self.flops = self.bytes = 0.0

    def run(self) -> None:
        seconds = self._context.seconds(self._start)
        turns = float(self._threads * self._rounds * self._repeats)
        self.busy += seconds
        self.flops += turns * self._kernel.flops
        self.bytes += turns * self._kernel.bytes
        factor = min(max(LAUNCH_SECONDS / max(seconds, 1e-6), 0.5), 8.0)
        if self._kernel.bytes:
            self._repeats = min(max(1, round(self._repeats * factor)), 1 << 20)
        else:
            self._rounds = min(max(1, round(self._rounds * factor)), 1 << 24)

    def _start(self) -> None:
        one, other = self._buffers
        values = (c_uint64(one), c_uint64(other), *map(c_uint32, (self._threads, self._rounds, self._repeats)))
        pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        shape = (self._blocks, 1, 1, self._kernel.threads, 1, 1)
        self._context.cuda.call("cuLaunchKernel", self._function, *shape, 0, None, pointers, None)


@contextlib.contextmanager
def _function(context: Context, kernel: Kernel) -> Iterator[c_void_p]:
    """The kernel, translated by the driver for this GPU."""
    cuda, module, function = context.cuda, c_void_p(), c_void_p()
    log = ctypes.create_string_buffer(4096)
    options, values = (
        (c_int * 2)(5, 6),
        (c_void_p * 2)(ctypes.addressof(log), 4096),
    )  # CU_JIT_ERROR_LOG_BUFFER, its size
    text = ctypes.create_string_buffer(kernel.ptx.encode("ascii"))
    code = cuda.code("cuModuleLoadDataEx", byref(module), text, 2, options, values)
    if code:
        raise cuda.error("cuModuleLoadDataEx", code, log.value.decode(errors="replace").strip())
    try:
        cuda.call("cuModuleGetFunction", byref(function), module, c_char_p(kernel.name.encode("ascii")))
        yield function
    finally:
        cuda.code("cuModuleUnload", module)


def _attribute(cuda: Cuda, attribute: int) -> int:
    value, function = c_int(), ctypes.CDLL(LIBRARY).cuDeviceGetAttribute
    function.argtypes, function.restype = (ctypes.POINTER(c_int), c_uint, c_int), c_int
    if code := function(byref(value), attribute, cuda.device(0)):
        raise cuda.error("cuDeviceGetAttribute", code)
    return value.value


def _closed() -> bool:
    """Whether the other end of stdin is closed: the process that wanted this load has ended."""
    return bool(select.select([sys.stdin], [], [], 0)[0]) and not sys.stdin.buffer.read1(1)  # type: ignore[attr-defined]


def _say(**message: object) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    try:
        main()
    except (CudaError, OSError) as error:
        _say(event="error", error=str(error))
        sys.exit(1)
