"""The CUDA driver API, as far as the active checks need it: prototypes from cuda.h, errors as exceptions, contexts.

Loaded in a child process only: a wedged driver may block any of these calls for ever. The `with` that takes a resource
also returns it, after an error too.
"""

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any
from uuid import UUID

from gpuwatch.diagnose.active.kernels import PARAMETERS, PTX, THREADS

LIBRARY = "libcuda.so.1"

CUdevice, CUdeviceptr = c_int, c_uint64


class CUuuid(ctypes.Structure):
    """16 bytes, in the order of the written form."""

    _fields_ = (("bytes", ctypes.c_ubyte * 16),)


PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
    "cuDeviceGetCount": (POINTER(c_int),),
    "cuDeviceGet": (POINTER(CUdevice), c_int),
    "cuDeviceGetUuid_v2": (POINTER(CUuuid), CUdevice),
    "cuDeviceCanAccessPeer": (POINTER(c_int), CUdevice, CUdevice),
    "cuDevicePrimaryCtxRetain": (POINTER(c_void_p), CUdevice),
    "cuDevicePrimaryCtxRelease_v2": (CUdevice,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuCtxEnablePeerAccess": (c_void_p, c_uint),
    "cuCtxDisablePeerAccess": (c_void_p,),
    "cuMemGetInfo_v2": (POINTER(c_size_t), POINTER(c_size_t)),
    "cuMemAlloc_v2": (POINTER(CUdeviceptr), c_size_t),
    "cuMemFree_v2": (CUdeviceptr,),
    "cuMemAllocHost_v2": (POINTER(c_void_p), c_size_t),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoD_v2": (CUdeviceptr, c_void_p, c_size_t),
    "cuMemcpyDtoH_v2": (c_void_p, CUdeviceptr, c_size_t),
    "cuMemcpyPeer": (CUdeviceptr, c_void_p, CUdeviceptr, c_void_p, c_size_t),
    "cuModuleLoadDataEx": (POINTER(c_void_p), c_void_p, c_uint, POINTER(c_int), POINTER(c_void_p)),
    "cuModuleGetFunction": (POINTER(c_void_p), c_void_p, c_char_p),
    "cuModuleUnload": (c_void_p,),
    "cuLaunchKernel": (c_void_p, *(c_uint,) * 7, c_void_p, POINTER(c_void_p), POINTER(c_void_p)),
    "cuEventCreate": (POINTER(c_void_p), c_uint),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cuEventDestroy_v2": (c_void_p,),
}
"""Function -> parameters. Each returns a CUresult; all exist since driver 470."""

RELEASING = frozenset(
    {
        "cuCtxSetCurrent",
        "cuDevicePrimaryCtxRelease_v2",
        "cuCtxDisablePeerAccess",
        "cuMemFree_v2",
        "cuMemFreeHost",
        "cuModuleUnload",
        "cuEventDestroy_v2",
    }
)
"""The calls that release resources; a process that ends still makes them."""


JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 5, 6  # CUjit_option
LOG_BYTES = 4096


class CudaError(Exception):
    """A call of the driver that did not return CUDA_SUCCESS; `detail`: the log of the driver's compiler."""

    def __init__(self, function: str, code: int, name: str, text: str, detail: str = "") -> None:
        self.function, self.code, self.name = function, code, name
        message = f"{name} ({code}): {text}" if text else f"{name} ({code})"
        super().__init__(f"{function}: {message}" + (f"; {detail}" if detail else ""))


class Cuda:
    """The loaded library. `calling` gets the name of each function before it is called. Methods that call the driver
    raise CudaError where it does not return CUDA_SUCCESS, except for `code`.
    """

    def __init__(self, path: str = "", calling: Callable[[str], None] = lambda function: None) -> None:
        """Load, without calling anything.

        Raises:
            OSError: the library cannot be loaded, or lacks a function.
        """
        library = ctypes.CDLL(path or LIBRARY)
        self._functions: dict[str, Any] = {}
        self._calling = calling
        for name, parameters in PROTOTYPES.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise OSError(f"{path or LIBRARY} has no {name}: it is of a driver before 470") from error
            function.argtypes, function.restype = parameters, c_int
            self._functions[name] = function

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of PROTOTYPES."""
        code = self.code(name, *arguments)
        if code:
            raise self.error(name, code)

    def code(self, name: str, *arguments: Any) -> int:
        """Call a function; its CUresult."""
        self._calling(name)
        return int(self._functions[name](*arguments))

    def error(self, function: str, code: int, detail: str = "") -> CudaError:
        """A CUresult as an exception, with the driver's name and text for it."""
        texts = []
        for getter in ("cuGetErrorName", "cuGetErrorString"):
            text = c_char_p()
            failed = self._functions[getter](code, byref(text))
            texts.append("" if failed or text.value is None else text.value.decode(errors="replace"))
        return CudaError(function, code, texts[0] or "unknown error", texts[1], detail)

    def start(self) -> int:
        """Initialize the driver API; the number of devices that are visible to this process."""
        self.call("cuInit", 0)
        count = c_int()
        self.call("cuDeviceGetCount", byref(count))
        return count.value

    def uuid(self, ordinal: int) -> str:
        """The UUID of a device, or of the MIG instance that it is: 8-4-4-4-12 hexadecimal digits, without prefix."""
        found = CUuuid()
        self.call("cuDeviceGetUuid_v2", byref(found), self.device(ordinal))
        return str(UUID(bytes=bytes(found.bytes)))

    def device(self, ordinal: int) -> int:
        """The CUdevice."""
        device = CUdevice()
        self.call("cuDeviceGet", byref(device), ordinal)
        return device.value


class Context:
    """The primary context of one device, which programs also use. Calls act on the context made current last."""

    def __init__(self, cuda: Cuda, device: int, handle: c_void_p) -> None:
        self.cuda, self.device, self.handle = cuda, device, handle

    def use(self) -> None:
        """Make it the current one."""
        self.cuda.call("cuCtxSetCurrent", self.handle)

    def free(self) -> int:
        """Bytes of unallocated device memory."""
        free, total = c_size_t(), c_size_t()
        self.cuda.call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    @contextmanager
    def memory(self, size: int) -> Iterator[int]:
        """The address of `size` bytes of device memory."""
        address = CUdeviceptr()
        self.use()
        self.cuda.call("cuMemAlloc_v2", byref(address), size)
        with _released(self, "cuMemFree_v2", address):
            yield address.value

    @contextmanager
    def pinned(self, size: int) -> Iterator["ctypes.Array[ctypes.c_char]"]:
        """Page-locked host memory, which the GPU reads and writes directly."""
        address = c_void_p()
        self.cuda.call("cuMemAllocHost_v2", byref(address), size)
        with _released(self, "cuMemFreeHost", address):
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
        with _released(self, "cuModuleUnload", module):
            yield Kernels(self, module)

    def put(self, address: int, data: Any, size: int) -> None:
        """Copy a buffer of the host to the device."""
        self.cuda.call("cuMemcpyHtoD_v2", address, ctypes.addressof(data), size)

    def get(self, data: Any, address: int, size: int) -> None:
        """Copy from the device to a buffer of the host."""
        self.cuda.call("cuMemcpyDtoH_v2", ctypes.addressof(data), address, size)

    def seconds(self, work: Callable[[], None]) -> float:
        """How long some work took, by the device's own events."""
        start, end = c_void_p(), c_void_p()
        self.cuda.call("cuEventCreate", byref(start), 0)
        with _released(self, "cuEventDestroy_v2", start):
            self.cuda.call("cuEventCreate", byref(end), 0)
            with _released(self, "cuEventDestroy_v2", end):
                self.cuda.call("cuEventRecord", start, None)
                work()
                self.cuda.call("cuEventRecord", end, None)
                self.cuda.call("cuEventSynchronize", end)
                milliseconds = c_float()
                self.cuda.call("cuEventElapsedTime", byref(milliseconds), start, end)
                return milliseconds.value / 1e3


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
def _released(context: Context, function: str, *arguments: Any) -> Iterator[None]:
    """Call the releasing function at the end. After an error the driver often refuses it; the first error is raised."""
    try:
        yield
    except BaseException:
        context.cuda.code("cuCtxSetCurrent", context.handle)
        context.cuda.code(function, *arguments)
        raise
    context.use()
    context.cuda.call(function, *arguments)
