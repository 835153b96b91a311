"""The tests on a device: add vectors, copy, write and read memory, copy to a peer; each verifies its result.

A test that fails raises CudaError or WrongResult; one that cannot be tried raises NotTried.
"""

import ctypes
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import byref, c_int
from typing import Any

from gpuwatch.diagnose.active.kernels import NOTHING_WRONG, pattern
from gpuwatch.diagnose.active.libcuda import Context, Cuda, Kernels, opened

ELEMENTS = (1 << 20) - 3
"""Elements of each vector: below 2^24, so that float32 sums are exact, and no multiple of a block."""

COPY_BYTES = 64 << 20
MEMORY_BYTES = 1 << 30
LEAST_BYTES = 1 << 20
REPORT_BYTES = 8
"""`pattern_verify` writes the number of wrong words and the first of them."""
REPEATS = 5
SEED, FLIPS = 0x5EED1234, (0, 0xFFFFFFFF)


class WrongResult(Exception):
    """The GPU computed a wrong result."""


class NotTried(Exception):
    """A test was not tried, because too little memory is free."""


def vector_add(cuda: Cuda) -> dict[str, Any]:
    """Two vectors of a million numbers are added, and the sum is compared with the CPU's."""
    a, b = array("f", range(ELEMENTS)), array("f", range(7, ELEMENTS + 7))
    expected, size = array("f", range(7, 2 * ELEMENTS + 7, 2)), ELEMENTS * 4
    got = array("f", bytes(size))
    with (
        opened(cuda, 0) as gpu,
        gpu.kernels() as kernels,
        gpu.memory(size) as at_a,
        gpu.memory(size) as at_b,
        gpu.memory(size) as at_sum,
    ):
        gpu.put(at_a, _whole(a), size)
        gpu.put(at_b, _whole(b), size)
        gpu.put(at_sum, _whole(got), size)
        kernels.run("vector_add", ELEMENTS, (at_a, at_b, at_sum, ELEMENTS))
        gpu.get(_whole(got), at_sum, size)
    if got != expected:
        i = next(i for i in range(ELEMENTS) if got[i] != expected[i])
        raise WrongResult(f"vectorAdd is wrong at i={i}: {a[i]:.0f} + {b[i]:.0f} gave {got[i]!r}")
    return {"bytes": 3 * size}


def bandwidth(cuda: Cuda) -> dict[str, Any]:
    """The best of some copies in each direction, through pinned memory; the data read back must equal the data sent."""
    with opened(cuda, 0) as gpu:
        size = _portion(gpu, COPY_BYTES, 4)
        with gpu.pinned(size) as host, gpu.memory(size) as device:
            sent = bytes(range(251)) * (size // 251 + 1)
            ctypes.memmove(host, sent, size)
            down = _best(gpu, lambda: gpu.put(device, host, size))
            ctypes.memset(host, 0, size)
            up = _best(gpu, lambda: gpu.get(host, device, size))
            if host.raw != sent[:size]:
                raise WrongResult(f"{size >> 20} MiB copied to the GPU and back came back changed")
    return {"bytes": size, "host_to_device": size / down, "device_to_host": size / up}


def memory(cuda: Cuda) -> dict[str, Any]:
    """A pattern and its inverse are written to much of the memory and read back by the GPU itself."""
    with opened(cuda, 0) as gpu, gpu.kernels() as kernels:
        size = _portion(gpu, MEMORY_BYTES, 2)
        with gpu.memory(size) as words, gpu.memory(REPORT_BYTES) as result:
            for flip in FLIPS:
                kernels.run("pattern_write", size // 4, (words, size // 4, SEED, flip))
                _verify(gpu, kernels, words, size, flip, result)
    return {"bytes": size}


def peer(cuda: Cuda) -> dict[str, Any]:
    """A pattern is copied from the first device to the second, which verifies it, and the same the other way."""
    with opened(cuda, 0) as one, opened(cuda, 1) as other:
        there, back = _crossed(one, other), _crossed(other, one)
    return {"bytes": there[0], "peer_bandwidth": min(there[1], back[1])}


def _crossed(source: Context, target: Context) -> tuple[int, float]:
    """Bytes copied, and bytes per second."""
    possible = c_int()
    source.cuda.call("cuDeviceCanAccessPeer", byref(possible), source.device, target.device)
    if not possible.value:
        raise WrongResult("the GPUs cannot reach each other's memory (cuDeviceCanAccessPeer says no)")
    source.use()
    size = min(_portion(source, COPY_BYTES, 4), _portion(target, COPY_BYTES, 4))
    with peer_access(source, target), source.memory(size) as here, target.memory(size) as there:
        source.use()
        with source.kernels() as kernels:
            kernels.run("pattern_write", size // 4, (here, size // 4, SEED, 0))
            copy = (there, target.handle, here, source.handle, size)
            took = _best(source, lambda: source.cuda.call("cuMemcpyPeer", *copy))
        target.use()
        with target.kernels() as kernels, target.memory(REPORT_BYTES) as result:
            _verify(target, kernels, there, size, 0, result)
    return size, size / took


@contextmanager
def peer_access(source: Context, target: Context) -> Iterator[None]:
    """Within it, the source may address the target's memory."""
    source.use()
    source.cuda.call("cuCtxEnablePeerAccess", target.handle, 0)
    try:
        yield
    finally:
        source.cuda.code("cuCtxSetCurrent", source.handle)
        source.cuda.code("cuCtxDisablePeerAccess", target.handle)


def _verify(gpu: Context, kernels: Kernels, words: int, size: int, flip: int, result: int) -> None:
    report = (ctypes.c_uint32 * 2)(0, NOTHING_WRONG)
    gpu.put(result, report, REPORT_BYTES)
    kernels.run("pattern_verify", size // 4, (words, size // 4, SEED, flip, result))
    gpu.get(report, result, REPORT_BYTES)
    if tuple(report) != (0, NOTHING_WRONG):
        wrong, first = report
        got, expected = ctypes.c_uint32(), pattern(first, SEED, flip)
        gpu.get(got, words + first * 4, 4)
        raise WrongResult(
            f"{wrong} of {size // 4} words are wrong, the first at byte {first * 4}: "
            f"{got.value:#010x} in place of {expected:#010x}"
        )


def _portion(gpu: Context, most: int, share: int) -> int:
    """The memory a test may take: a share of the free memory, a multiple of a MiB."""
    gpu.use()
    free = gpu.free()
    size = min(most, free // share) // LEAST_BYTES * LEAST_BYTES
    if size < LEAST_BYTES:
        raise NotTried(f"only {free >> 20} MiB of its memory are free")
    return size


def _best(gpu: Context, work: Callable[[], None]) -> float:
    """Seconds of the quickest repetition; a first one, not counted, wakes the link."""
    work()
    return min(gpu.seconds(work) for _ in range(REPEATS))


def _whole(numbers: "array[float]") -> Any:
    return (ctypes.c_char * (len(numbers) * numbers.itemsize)).from_buffer(numbers)
