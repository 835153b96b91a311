"""nvidia-smi -q dumps written by hand: driver 610's labels, Windows, a GPU without memory of its own, lost GPUs."""

from pathlib import Path
from typing import Any

import pytest

from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.collect.nvml.library import Failure, NvmlFailure, ask
from gpuwatch.collect.nvml.processes import file_name
from gpuwatch.model.snapshot import Gpu
from gpuwatch.sim.capture import open_capture

DATA = Path(__file__).parent / "data"
CAPTURES = Path(__file__).parents[3] / "captures"
MIB = 1 << 20


def read(nvml: Any, index: int = 0) -> Gpu:
    return GpuReader(nvml, *register(nvml, index)).read(0.0, 0.0)


@pytest.fixture
def windows() -> Any:
    return open_capture(str(DATA / "windows-610.txt"))


def test_versions_are_without_the_note_that_their_label_goes_away(windows: Any) -> None:
    assert ask(windows, "nvmlSystemGetDriverVersion") == "610.88"
    assert ask(windows, "nvmlSystemGetCudaDriverVersion_v2") == 13030


def test_limits_have_a_section_of_their_own_and_base_power_is_none_of_them(windows: Any) -> None:
    power = read(windows).power

    assert (power.average, power.instant) == (None, 21.6)
    assert (power.limit_enforced, power.limit_configured, power.limit_default) == (250.0, 250.0, 250.0)
    assert (power.limit_min, power.limit_max) == (105.0, 350.0)


def test_thresholds_that_are_called_specifications(windows: Any) -> None:
    temperature = read(windows).temperature

    assert (temperature.gpu, temperature.margin, temperature.memory) == (44.0, None, None)
    assert (temperature.threshold_shutdown, temperature.threshold_target) == (100.0, 84.0)


def test_margins_of_driver_610_are_those_of_driver_590(tmp_path: Path) -> None:
    older = (CAPTURES / "h100__590.48.01.txt").read_text()
    newer = older.replace("GPU T.Limit Temp ", "GPU Current T.Limit Temp ")
    for threshold in ("GPU Shutdown", "GPU Slowdown", "GPU Max Operating", "Memory Max Operating"):
        newer = newer.replace(f"{threshold} T.Limit Temp ", f"{threshold} T.Limit Temp Specification ")
    (tmp_path / "older").write_text(older)
    (tmp_path / "newer").write_text(newer)
    expected, found = (read(open_capture(f"{tmp_path}/{name}#load")).temperature for name in ("older", "newer"))

    assert newer.count("Specification") == 8
    assert found == expected
    assert (found.margin, found.margin_shutdown, found.margin_memory_max) == (26.0, -8.0, 0.0)


def test_processes_of_windows_have_names_with_spaces_and_no_memory(windows: Any) -> None:
    assert [(p.pid, p.type, p.name, p.used_memory) for p in read(windows).processes or ()] == [
        (1456, "compute+graphics", None, None),
        (7788, "compute+graphics", "msedge.exe", None),
        (9120, "graphics", "game main.exe", None),
    ]


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/python3 -m train --token=x", "python3"),
        (r"C:\Program Files\Blender\blender.EXE -b scene.blend", "blender.EXE"),
        (r"Z:\home\me\Some Game\bin\x64\game.exe", "game.exe"),
        (r"\\server\share\tool.exe", "tool.exe"),
        (r"C:\Windows\System32\dwm", "dwm"),
        ("[Insufficient Permissions]", None),
        ("", None),
    ],
)
def test_a_program_is_named_without_its_folder_and_arguments(command: str, name: str | None) -> None:
    assert file_name(command) == name


def test_a_gpu_without_memory_of_its_own_shows_what_it_has() -> None:
    gpu = read(open_capture(str(DATA / "gb10-580.txt")))

    assert (gpu.utilization.gpu, gpu.utilization.memory) == (0.03, None)
    assert (gpu.memory.total, gpu.bar1.total, gpu.clocks.memory, gpu.power.limit_enforced) == (None,) * 4
    assert gpu.clock_events.active == {"gpu_idle": True, "sw_power_cap": False}
    assert [(p.pid, p.type, p.used_memory) for p in gpu.processes or ()] == [(2345, "graphics", 18 * MIB)]
    assert gpu.errors == {}


def test_a_lost_gpu_that_still_has_a_uuid_is_known_by_it() -> None:
    nvml = open_capture(str(DATA / "lost-590.txt"))
    handle, identity = register(nvml, 2)

    assert read(nvml, 0).temperature.gpu == 41.0
    assert (identity.uuid, identity.name) == ("GPU-00000000-0000-0000-0000-000000000003", None)
    with pytest.raises(NvmlFailure) as caught:
        GpuReader(nvml, handle, identity).read(0.0, 0.0)
    assert caught.value.kind is Failure.LOST
    with pytest.raises(NvmlFailure, match="GPU is lost"):
        register(nvml, 1)
