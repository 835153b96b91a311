"""A C-ABI fake of NVIDIA's `libnvidia-ml.so.1`, for drills and benchmarks of anything that reads NVML.

The library exports the functions of nvml.h (or only those of an older driver), so pynvml, nvitop and gpuwatch's own
reader load it as they load the real one. A FakeDriver holds its state in a mapped file: the test changes a number,
hangs a call or pushes an XID, and every process that has the library loaded sees it at the next call.

    with FakeDriver(tmp_path, gpus=8, profile="550") as driver:
        child = subprocess.Popen([sys.executable, "client.py"], env={**os.environ, **driver.env})
        driver.set(3, temperature=91, power_mw=650_000)
        driver.hang("nvmlDeviceGetPowerUsage", gpu=3)
        driver.xid(5, 79)
        driver.lose(5)
        driver.calls("nvmlDeviceSetPowerManagementLimit")
        driver.couple(0, clock_bound=0.4)
        driver.sets()

`python -m tests.fakes.libnvml COMMAND...` runs a command, such as `nvitop -1`, on eight idle GPUs. It needs the
source tree: the fake is not part of the installed package.
"""

from tests.fakes.libnvml.coupling import FakeSet
from tests.fakes.libnvml.driver import FakeDriver
from tests.fakes.libnvml.library import PROFILES, build
from tests.fakes.libnvml.tenants import COMPUTE, GRAPHICS, MPS, NO_INSTANCE, FakeMig, FakeProcess, FakeVgpu

__all__ = [
    "COMPUTE",
    "GRAPHICS",
    "MPS",
    "NO_INSTANCE",
    "PROFILES",
    "FakeDriver",
    "FakeMig",
    "FakeProcess",
    "FakeSet",
    "FakeVgpu",
    "build",
]
