"""MIG layouts as NVML has them: a real pynvml asks the fake driver where instances may be, and the table agrees."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from gpuwatch.rightsizing.findings.mig_packing import cuts
from gpuwatch.rightsizing.model.mig_profiles import MEDIA, model_of
from tests.fakes.libnvml import FakeDriver, FakeMig

PROFILES = {19: "1g", 20: "1g+me", 15: "1g, twice the memory", 14: "2g", 9: "3g", 5: "4g", 0: "7g"}
"""Of A100 and H100, by NVML's id, least first; the media engines apart."""

CLIENT = """
import ctypes, json, sys, pynvml as n
n.nvmlInit()
gpu, found = n.nvmlDeviceGetHandleByIndex(0), {}
try:
    for profile in json.loads(sys.argv[1]):
        count = ctypes.c_uint(0)
        n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile, None, ctypes.byref(count))
        room = (n.c_nvmlGpuInstancePlacement_t * count.value)()
        n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile, room, ctypes.byref(count))
        found[profile] = [(each.start, each.size) for each in room]
except n.NVMLError as error:
    found = type(error).__name__
print(json.dumps(found))
"""


def placements(driver: FakeDriver, profiles: tuple[int, ...]) -> dict[int, list[tuple[int, int]]] | str:
    client = [sys.executable, "-c", CLIENT, json.dumps(profiles)]
    answer = subprocess.run(client, env={**os.environ, **driver.env}, check=True, timeout=60, capture_output=True)
    found = json.loads(answer.stdout)
    if isinstance(found, str):
        return found
    return {int(profile): [(start, size) for start, size in where] for profile, where in found.items()}


@pytest.mark.parametrize("model", ["A100", "H100"])
def test_every_cut_is_made_of_placements_that_nvml_calls_possible(model: str, tmp_path: Path) -> None:
    with FakeDriver(tmp_path, model=model, gpus=1) as driver:
        driver.set_mig(0, [FakeMig(gi=1)])
        possible = placements(driver, tuple(PROFILES))
    assert isinstance(possible, dict)
    gpu = model_of({"A100": "NVIDIA A100-SXM4-80GB", "H100": "NVIDIA H100 80GB HBM3"}[model])
    assert gpu is not None
    media = next(profile for profile in gpu.profiles if profile.name.endswith(MEDIA))
    named = dict(zip([number for number in PROFILES if number != 20], gpu.plain(), strict=True)) | {20: media}
    assert {number: [(start, each.size) for start in each.starts] for number, each in named.items()} == possible
    by_name = {each.name: possible[number] for number, each in named.items()}
    every = [each for cut in cuts(gpu.plain()) for each in cut.placements]
    assert not [each for each in every if (each.start, each.size) not in by_name[each.profile]]
    most = Counter({each.name: each.max_instances for each in gpu.plain()})
    assert all(len(by_name[name]) == count for name, count in most.items()), "apart, each place is one instance"


def test_no_advice_without_mig_mode_or_of_a_strange_profile(tmp_path: Path) -> None:
    with FakeDriver(tmp_path, gpus=1) as driver:
        assert placements(driver, (19,)) == "NVMLError_NotSupported"
        driver.set_mig(0, [FakeMig(gi=1)])
        assert placements(driver, (99,)) == "NVMLError_NotSupported"
