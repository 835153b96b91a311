"""Field numbers by driver: the table is that of NVIDIA's bindings, and a wrong number is never asked."""

from importlib.metadata import version
from pathlib import Path

import pynvml
import pytest

from gpuwatch.collect.nvml.fields import FIELDS, IDENTITY, FieldId, NvmlCall
from gpuwatch.collect.nvml.links import ERRORS, SPEED, TRAFFIC
from gpuwatch.collect.nvml.numbers import TABLE, field_number, lacks, release
from tests.collect.nvml.test_reads import looks
from tests.fakes.libnvml import PROFILES, FakeDriver, models
from tests.fakes.nvml_child import run

WAYS = [way for field in (*FIELDS, *IDENTITY) for way in field.ways]
FIELD_NAMES = {
    *(name for way in WAYS if isinstance(way, FieldId) for name in way.names),
    *(SPEED, *ERRORS.values(), *(name for ways in TRAFFIC.values() for name, _ in ways)),
}
MOVED = {
    "DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": (6, "sw_thermal_slowdown"),
    "DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": (7, "hw_thermal_slowdown"),
    "DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": (8, "hw_power_brake_slowdown"),
}
"""Field -> its place in the fake's event_ns, the clock event reason it times."""


def test_the_table_is_that_of_the_bindings() -> None:
    """Of the installed ones, old or new; `scripts/nvml-fields` writes it anew when NVIDIA releases others."""
    ours = release(version("nvidia-ml-py").partition(".")[2])
    known = {
        name: [
            value for first, last, value in entries if release(first) <= ours and (not last or ours <= release(last))
        ]
        for name, entries in TABLE.items()
        if not name.startswith("c_nvml")
    }
    assert sorted(name for name, values in known.items() if values and not hasattr(pynvml, name)) == []
    assert sorted(name for name, values in known.items() if not values and hasattr(pynvml, name)) == []
    numbers = {name: values[0] for name, values in known.items() if values and values[0] is not None}
    assert {name: value for name, value in numbers.items() if getattr(pynvml, name) != value} == {}


def test_every_name_that_is_read_is_in_the_table() -> None:
    wanted = {f"NVML_FI_{name}" for name in FIELD_NAMES}
    wanted |= {way.name for way in WAYS if isinstance(way, NvmlCall)}
    wanted |= {argument for way in WAYS if isinstance(way, NvmlCall) for argument in way.args}
    assert wanted - set(TABLE) == set()


def test_only_three_fields_moved() -> None:
    moved = {name for name in FIELD_NAMES if len(TABLE[f"NVML_FI_{name}"]) > 1 or TABLE[f"NVML_FI_{name}"][0][1]}
    assert moved == set(MOVED)


@pytest.mark.parametrize(
    ("driver", "number"),
    [
        ("525.147.05", None),
        ("535.216.03", None),
        ("570.195.03", None),  # 251 is power smoothing there, 269 no number yet
        ("575.51.03", 251),
        ("575.64.05", 251),
        ("580.65.06", 251),
        ("580.76.05", None),  # between two releases that differ
        ("580.82.07", 269),
        ("590.48.01", 269),
        ("999.10", None),  # a field that moved once may move again
        ("", None),
        ("N/A", None),
        ("580", None),
    ],
)
def test_a_number_is_known_only_between_bindings_that_agree(driver: str, number: int | None) -> None:
    assert field_number("DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN", driver) == number
    assert field_number("DEV_MEMORY_TEMP", driver) == 82


def test_drivers_by_their_versions() -> None:
    assert release("580.65.06") == (580, 65)
    assert (release(""), release("Ⅷ.1"), release("x.y")) == ((), (), ())
    assert lacks("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", "550.163.01")
    assert not lacks("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", "570.195.03")
    assert not lacks("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION", "")
    assert not lacks("nvmlDeviceGetName", "470.1")  # older than what was compared: not known to be missing


@pytest.mark.parametrize("profile", PROFILES)
def test_clock_event_times_are_right_or_absent_under_every_driver(tmp_path: Path, profile: str) -> None:
    """With the bindings' own numbers, drivers 575 and 580.65 give 2e-09 s: a power smoothing setting."""
    with FakeDriver(tmp_path, gpus=1, profile=profile) as driver:
        driver.set(0, event_ns=(0, 0, 0, 0, 0, 0, *(5_200_000_000 + place for place in range(3)), None, 0, 0))
        known = field_number("DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN", models.VERSIONS[profile][0]) is not None
        (look,) = looks(driver, "look(0)")
        for place, (_, reason) in enumerate(MOVED.values()):
            path = f"clock_events.seconds.{reason}"
            assert look["values"].get(path) == (pytest.approx(5.2, abs=1e-6) if known else None), place
            assert (path in look["unsupported"]) is not known


def test_the_fake_answers_in_both_numberings(tmp_path: Path) -> None:
    """The same number is a time to one driver and a setting to another, as on real ones."""
    ask = "tell([v.value.uiVal if not v.nvmlReturn else None for v in nvml.nvmlDeviceGetFieldValues(handle, {})])"
    numbers = [[field_number(name, driver) for name in MOVED] for driver in ("575.57.08", "580.95.05")]
    answers = {}
    for profile in ("570", "575", "580"):
        with FakeDriver(tmp_path / profile, gpus=1, profile=profile) as driver:
            driver.set(0, event_ns=(0, 0, 0, 0, 0, 0, 41, 42, 43, None, 0, 0))
            answers[profile] = run(driver, ask.format(numbers[0]) + "\n" + ask.format(numbers[1]))
    assert answers == {
        "570": [[2, 2, 2], [None] * 3],
        "575": [[41, 42, 43], [2, 2, 2]],
        "580": [[2, 2, 2], [41, 42, 43]],
    }


@pytest.mark.parametrize(
    ("version", "why"),
    [
        ("570.195.03", "driver 570.195.03 does not have NVML_FI_{0}, known from 575.51 on"),
        ("580.76.05", "the number of NVML_FI_{0} is not known for driver 580.76.05"),
        ("580.95.05", None),
    ],
)
def test_a_reading_that_the_driver_does_not_give_has_its_reason(tmp_path: Path, version: str, why: str | None) -> None:
    piece = """
    from gpuwatch.collect.nvml.gpu import GpuReader, register
    tell(GpuReader(nvml, *register(nvml, 0)).read(1.0, 1.0))
    """
    with FakeDriver(tmp_path, gpus=1, profile="570") as driver:
        driver.reload(version)
        (gpu,) = run(driver, piece)
    for name, (_, reason) in MOVED.items():
        path = f"clock_events.seconds.{reason}"
        assert gpu.get("why_absent", {}).get(path) == (why and why.format(name))
        assert (path in gpu["unsupported"]) is (why is not None)


@pytest.mark.parametrize(
    ("reset", "drain", "action"),
    [(0, 0, 0), (1, 0, 1), (0, 1, 4), (1, 1, 1), (1, None, 1), (None, 1, 4), (None, None, None)],
)
def test_a_driver_without_recovery_actions_gives_its_reset_status(
    tmp_path: Path, reset: int | None, drain: int | None, action: int | None
) -> None:
    with FakeDriver(tmp_path, gpus=1, profile="550") as driver:
        driver.set(0, reset_status=reset, drain_and_reset_status=drain)
        (look,) = looks(driver, "look(0)")
    assert look["values"].get("recovery_action") == action


def test_a_driver_with_recovery_actions_is_not_asked_for_its_reset_status(driver: FakeDriver) -> None:
    driver.set(0, recovery_action=2, reset_status=1)
    (look,) = looks(driver, "look(0)")
    assert look["values"]["recovery_action"] == 2
