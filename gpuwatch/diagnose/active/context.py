"""A CUDA context and what lives in it; each piece is given back by the `with` that got it, also after an error."""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_float, c_int, c_size_t, c_void_p
from typing import Any

from gpuwatch.diagnose.active.kernels import PARAMETERS, PTX, THREADS
from gpuwatch.diagnose.active.libcuda import Cuda, CUdeviceptr

JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 5, 6  # CUjit_option
LOG_BYTES = 4096


class Context:
    """The primary context of one device, the one programs use, too. Calls act on the context made current last."""

    def __init__(self, cuda: Cuda, device: int, handle: c_void_p) -> None:
        self.cuda, self.device, self.handle = cuda, device, handle

    def use(self) -> None:
        """Make it the current one."""
        self.cuda.call("cuCtxSetCurrent", self.handle)

    def free(self) -> int:
        """Bytes of device memory that nobody has."""
        free, total = c_size_t(), c_size_t()
        self.cuda.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    @contextmanager
    def memory(self, size: int) -> Iterator[int]:
        """Device memory of so many bytes; its address."""
        address = CUdeviceptr()
        self.use()
        self.cuda.call("cuMemAlloc_v2", byref(address), size)
        with _given_back(self, "cuMemFree_v2", address):
            yield address.value

    @contextmanager
    def pinned(self, size: int) -> Iterator["ctypes.Array[ctypes.c_char]"]:
        """Memory of the host that the GPU reads and writes without a detour."""
        address = c_void_p()
        self.cuda.call("cuMemAllocHost_v2", byref(address), size)
        with _given_back(self, "cuMemFreeHost", address):
            yield (ctypes.c_char * size).from_address(address.value or 0)

    @contextmanager
    def kernels(self) -> Iterator["Kernels"]:
        """The kernels, compiled for this device."""
        log = ctypes.create_string_buffer(LOG_BYTES)
        options = (c_int * 2)(JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
        values = (c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        text, module = ctypes.create_string_buffer(PTX.encode("ascii")), c_void_p()
        code = self.cuda.code("cuModuleLoadDataEx", byref(module), text, 2, options, values)
        if code:
            raise self.cuda.error("cuModuleLoadDataEx", code, log.value.decode(errors="replace").strip())
        with _given_back(self, "cuModuleUnload", module):
            yield Kernels(self, module)

    def put(self, address: int, data: Any, size: int) -> None:
        """Copy a buffer of the host to the device."""
        self.cuda.call("cuMemcpyHtoD_v2", address, ctypes.addressof(data), size)

    def get(self, data: Any, address: int, size: int) -> None:
        """Copy from the device to a buffer of the host."""
        self.cuda.call("cuMemcpyDtoH_v2", ctypes.addressof(data), address, size)

    def seconds(self, work: Callable[[], None]) -> float:
        """How long the device says some work took."""
        with self._event() as start, self._event() as end:
            self.cuda.call("cuEventRecord", start, None)
            work()
            self.cuda.call("cuEventRecord", end, None)
            self.cuda.call("cuEventSynchronize", end)
            milliseconds = c_float()
            self.cuda.call("cuEventElapsedTime", byref(milliseconds), start, end)
            return milliseconds.value / 1e3

    @contextmanager
    def _event(self) -> Iterator[c_void_p]:
        event = c_void_p()
        self.cuda.call("cuEventCreate", byref(event), 0)
        with _given_back(self, "cuEventDestroy_v2", event):
            yield event


class Kernels:
    """A loaded module."""

    def __init__(self, context: Context, module: c_void_p) -> None:
        self._context, self._module = context, module

    def run(self, name: str, count: int, arguments: Sequence[int]) -> None:
        """Run a kernel of `PARAMETERS` with a thread for each of `count` elements, and wait for it."""
        cuda, function = self._context.cuda, c_void_p()
        cuda.call("cuModuleGetFunction", byref(function), self._module, name.encode("ascii"))
        values = [kind(value) for kind, value in zip(PARAMETERS[name], arguments, strict=True)]
        pointers = (c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        blocks = -(-count // THREADS)
        cuda.call("cuLaunchKernel", function, blocks, 1, 1, THREADS, 1, 1, 0, None, pointers, None)
        cuda.call("cuCtxSynchronize")


@contextmanager
def opened(cuda: Cuda, ordinal: int) -> Iterator[Context]:
    """The device's primary context, current."""
    device, handle = cuda.device(ordinal), c_void_p()
    cuda.call("cuDevicePrimaryCtxRetain", byref(handle), device)
    context = Context(cuda, device, handle)
    try:
        context.use()
        yield context
    finally:
        cuda.code("cuCtxSetCurrent", None)
        cuda.code("cuDevicePrimaryCtxRelease_v2", device)


@contextmanager
def _given_back(context: Context, function: str, *arguments: Any) -> Iterator[None]:
    """Give back at the end. After an error the driver often refuses that, too; the first error is the one to tell."""
    try:
        yield
    except BaseException:
        context.cuda.code("cuCtxSetCurrent", context.handle)
        context.cuda.code(function, *arguments)
        raise
    context.use()
    context.cuda.call(function, *arguments)
