"""A C-ABI fake of NVIDIA's `libcuda.so.1`, for tests of programs that put work on GPUs.

It does the work of gpuwatch's own kernels in the host's memory, fails, hangs or lies as told, and keeps a journal of
every call, of what no program should do, and of what was not given back.

    with FakeCuda(tmp_path, ["GPU-..."]) as cuda:
        cuda.error("cuInit", 802)
        active = run_active(view, library=str(cuda.library))
        assert cuda.misuses() == [] and cuda.leaks() == []
"""

from tests.fakes.libcuda.driver import FakeCuda
from tests.fakes.libcuda.library import build

__all__ = ["FakeCuda", "build"]
