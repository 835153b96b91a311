"""The CUDA driver API, as far as the active checks need it: prototypes by cuda.h, errors as exceptions.

Loaded in a child process only: a wedged driver may keep any of these calls for ever.
"""

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

LIBRARY = "libcuda.so.1"

CUdevice, CUdeviceptr = c_int, c_uint64


class CUuuid(ctypes.Structure):
    """16 bytes, in the order in which they are written."""

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
"""Function -> parameters. Each returns a CUresult; all are there since driver 470."""

GIVING_BACK = frozenset(
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
"""What a program that is to end still has to call."""


class CudaError(Exception):
    """A call of the driver that answered with something else than CUDA_SUCCESS; `detail`: what its compiler said."""

    def __init__(self, function: str, code: int, name: str, text: str, detail: str = "") -> None:
        self.function, self.code, self.name = function, code, name
        words = f"{name} ({code}): {text}" if text else f"{name} ({code})"
        super().__init__(f"{function}: {words}" + (f"; {detail}" if detail else ""))


class Cuda:
    """The loaded library. `calling` is told the name of each function before it is called."""

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
        """Call a function of PROTOTYPES.

        Raises:
            CudaError: it did not answer CUDA_SUCCESS.
        """
        code = self.code(name, *arguments)
        if code:
            raise self.error(name, code)

    def code(self, name: str, *arguments: Any) -> int:
        """Call a function; its CUresult."""
        self._calling(name)
        return int(self._functions[name](*arguments))

    def error(self, function: str, code: int, detail: str = "") -> CudaError:
        """A CUresult as an exception, in the driver's words."""
        name, text = self._word("cuGetErrorName", code), self._word("cuGetErrorString", code)
        return CudaError(function, code, name or "unknown error", text, detail)

    def _word(self, function: str, code: int) -> str:
        word = c_char_p()
        failed = self._functions[function](code, ctypes.byref(word))
        return "" if failed or word.value is None else word.value.decode(errors="replace")

    def start(self) -> int:
        """Initialize the driver API; the number of devices that CUDA shows this process.

        Raises:
            CudaError: the driver cannot be used.
        """
        self.call("cuInit", 0)
        count = c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value

    def uuid(self, ordinal: int) -> str:
        """Of a device or the MIG instance it stands for: 8-4-4-4-12 hexadecimal digits, without prefix.

        Raises:
            CudaError: there is none.
        """
        found = CUuuid()
        self.call("cuDeviceGetUuid_v2", ctypes.byref(found), self.device(ordinal))
        digits = bytes(found.bytes).hex()
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    def device(self, ordinal: int) -> int:
        """The CUdevice.

        Raises:
            CudaError: there is none.
        """
        device = CUdevice()
        self.call("cuDeviceGet", ctypes.byref(device), ordinal)
        return device.value
