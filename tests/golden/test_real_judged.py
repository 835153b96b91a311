"""What nvidia-smi printed on real machines that were well, idle and at work: no check finds anything."""

import pytest
from msgspec.structs import replace

from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.health.judge import Judge
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, Snapshot
from gpuwatch.sim.capture import open_capture
from tests.golden.printed import CAPTURES

FILES = sorted(CAPTURES.glob("*.txt"))
CYCLES = 30
INTERVAL = 2.0


def sample(file: str, phase: str) -> Gpu:
    nvml = open_capture(f"{file}#{phase}")
    return GpuReader(nvml, *register(nvml, 0)).read(1.0, 1.0)


@pytest.mark.parametrize("phase", ["idle", "load"])
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
@pytest.mark.parametrize("hysteresis", [True, False])
def test_a_real_gpu_that_is_well(file: str, phase: str, hysteresis: bool) -> None:
    gpu, judge = sample(file, phase), Judge(uptime=1e6, hysteresis=hysteresis)
    status = GpuStatus(identity=gpu.identity, state=GpuState.FRESH)
    for number in range(1, CYCLES):
        at = number * INTERVAL
        seen = Snapshot(at=at, interval=INTERVAL, gpus=(replace(gpu, at=at),), statuses=(status,))
        assert judge.judge(seen).findings == ()
