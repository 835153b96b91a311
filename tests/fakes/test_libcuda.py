"""The fake libcuda.so.1 is as strict as hardware: what a program does wrong is an error, or at least written down."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.libcuda import FakeCuda, build

GPUS = ("GPU-6d019ae0-720b-b598-6ccf-d65259c67992", "GPU-45f72e3f-fa15-ba65-3b15-82107d01ed2c")

START = """
import ctypes, sys
from ctypes import byref, c_float, c_int, c_void_p
from gpuwatch.diagnose.active.libcuda import opened
from gpuwatch.diagnose.active.kernels import PTX
from gpuwatch.diagnose.active.libcuda import Cuda, CudaError
cuda = Cuda(sys.argv[1])
at, handle, other = ctypes.c_uint64(), c_void_p(), c_void_p()
"""
OPEN = "cuda.start(); cuda.call('cuDevicePrimaryCtxRetain', byref(handle), 0); cuda.call('cuCtxSetCurrent', handle)\n"
LOAD = "module, function = c_void_p(), c_void_p(); text = PTX.encode()\n"


def program(tmp_path: Path, lines: str) -> tuple[str, FakeCuda]:
    """Runs the lines in a process that sees both GPUs: the last line of stderr, and the driver."""
    fake = FakeCuda(tmp_path, GPUS)
    env = {**os.environ, **fake.env, "CUDA_VISIBLE_DEVICES": ",".join(GPUS)}
    command = (sys.executable, "-c", START + lines, str(fake.library))
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return (done.stderr.strip().splitlines() or [""])[-1], fake


WRONG = {
    "before cuInit": ("cuda.uuid(0)", "(3)", "cuDeviceGet before cuInit in this process"),
    "without a context": ("cuda.start(); cuda.call('cuMemAlloc_v2', byref(at), 64)", "(201)", None),
    "no such device": ("cuda.start(); cuda.device(2)", "101", None),
    "a context nobody has": (
        "cuda.start(); cuda.call('cuCtxSetCurrent', 4711)",
        "(201)",
        "no such context is made current",
    ),
    "freed twice": (
        OPEN + "cuda.call('cuMemAlloc_v2', byref(at), 64)\nfor _ in 'ab': cuda.call('cuMemFree_v2', at)",
        "(1)",
        "cuMemFree of what was not allocated",
    ),
    "more than there is": (OPEN + "cuda.call('cuMemAlloc_v2', byref(at), 1 << 40)", "(2)", None),
    "a copy beyond the end": (
        OPEN + "cuda.call('cuMemAlloc_v2', byref(at), 64); cuda.call('cuMemcpyHtoD_v2', at, bytes(128), 128)",
        "(1)",
        "copy to memory of no device",
    ),
    "a copy from nowhere": (
        OPEN + "cuda.call('cuMemAlloc_v2', byref(at), 64); cuda.call('cuMemcpyHtoD_v2', at, 4711, 64)",
        "(1)",
        "copy from memory that is not there",
    ),
    "ptx without a head": (
        OPEN + LOAD + "cuda.call('cuModuleLoadDataEx', byref(module), text[14:], 0, None, None)",
        "(218)",
        None,
    ),
    "no such kernel": (
        OPEN
        + LOAD
        + "cuda.call('cuModuleLoadDataEx', byref(module), text, 0, None, None)\n"
        + "cuda.call('cuModuleGetFunction', byref(function), module, b'vector_sub')",
        "500",
        None,
    ),
    "an event that was not awaited": (
        OPEN
        + "one = c_void_p(); took = c_float(); cuda.call('cuEventCreate', byref(one), 0)\n"
        + "cuda.call('cuEventRecord', one, None); cuda.call('cuEventElapsedTime', byref(took), one, one)",
        "600",
        "cuEventElapsedTime before the end was awaited",
    ),
    "a context released too often": (
        "cuda.start(); cuda.call('cuDevicePrimaryCtxRelease_v2', 0)",
        "(201)",
        "a context is released that nobody has",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_call_fails(tmp_path, name):
    lines, code, misuse = WRONG[name]
    last, fake = program(tmp_path, lines)
    assert "CudaError" in last
    assert code in last
    assert fake.misuses() == ([misuse] if misuse else [])


LAUNCH = (
    OPEN
    + LOAD
    + """
from gpuwatch.diagnose.active.libcuda import Context, Kernels
context = Context(cuda, 0, handle)
cuda.call('cuMemAlloc_v2', byref(at), 4096)
with context.kernels() as kernels:
    {}
"""
)
LAUNCHED = {
    "beyond its memory": ("kernels.run('pattern_write', 2048, (at.value, 2048, 1, 0))", "(700)", "a kernel leaves its"),
    "at an odd address": ("kernels.run('pattern_write', 8, (at.value + 2, 8, 1, 0))", "716", "a kernel leaves its"),
    "with too few threads": (
        "kernels.run('pattern_write', 256, (at.value, 1024, 1, 0))",
        "(1)",
        "256 threads for 1024",
    ),
}


@pytest.mark.parametrize("name", LAUNCHED)
def test_a_wrong_launch_fails(tmp_path, name):
    line, code, misuse = LAUNCHED[name]
    last, fake = program(tmp_path, LAUNCH.format(line))
    assert "CudaError" in last
    assert code in last
    assert fake.misuses()[0].startswith(misuse)


def test_what_is_not_restored_is_reported(tmp_path):
    lines = "cuda.start()\nwith opened(cuda, 0) as gpu: cuda.call('cuMemAlloc_v2', byref(at), 4096)"
    last, fake = program(tmp_path, lines)
    assert last == ""
    assert fake.leaks() == [f"{GPUS[0]}: 1 allocations of 4096 bytes, 0 events, 0 modules"]


def test_a_context_that_is_kept_is_reported(tmp_path):
    _, fake = program(tmp_path, OPEN)
    assert fake.leaks() == [f"{GPUS[0]}: its context"]


def test_addresses_of_the_device_are_none_of_the_host(tmp_path):
    """A program that follows one dies, as it would on hardware."""
    lines = OPEN + "cuda.call('cuMemAlloc_v2', byref(at), 64); ctypes.string_at(at.value, 4)"
    fake = FakeCuda(tmp_path, GPUS)
    env = {**os.environ, **fake.env, "CUDA_VISIBLE_DEVICES": GPUS[0]}
    done = subprocess.run((sys.executable, "-c", START + lines, str(fake.library)), env=env, check=False)
    assert done.returncode == -11


def test_it_is_built_once_and_kept(tmp_path):
    first = build(tmp_path)
    built = first.stat().st_mtime_ns
    assert build(tmp_path) == first
    assert first.stat().st_mtime_ns == built


def test_a_gpu_that_is_not_there_hides_those_after_it(tmp_path):
    fake = FakeCuda(tmp_path, GPUS)
    env = {**os.environ, **fake.env, "CUDA_VISIBLE_DEVICES": f"{GPUS[1]},GPU-unknown,{GPUS[0]}"}
    command = (sys.executable, "-c", START + "print(cuda.start(), cuda.uuid(0))", str(fake.library))
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", GPUS[1].removeprefix("GPU-")]
