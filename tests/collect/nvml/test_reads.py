"""FIELDS on drivers of several ages: fallbacks, batches, what is remembered and what is asked again."""

import textwrap
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpuwatch.collect.nvml.fields import FIELDS, FieldId, FieldRow, NvmlCall, Tier
from gpuwatch.collect.nvml.library import KINDS, Failure, NvmlFailure, ask, error_text, failure, text
from gpuwatch.collect.nvml.reads import FieldReader, nest
from tests.fakes.libnvml import FakeDriver
from tests.fakes.nvml_child import run

READ = """
from gpuwatch.collect.nvml.fields import FIELDS, tiers_due
from gpuwatch.collect.nvml.reads import FieldReader
reader = FieldReader(nvml, handle, FIELDS)
def look(count, **more):
    values = reader.read(tiers_due(count, **more))
    tell({"values": {p: v for p, v in values.items() if v is not None}, "errors": reader.errors,
          "unsupported": reader.unsupported})
"""
UNSUPPORTED, TRANSIENT = 3, 999  # NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_UNKNOWN


def looks(driver: FakeDriver, piece: str, *turns: Any) -> list[dict[str, Any]]:
    return run(driver, READ + textwrap.dedent(piece), *turns)


@pytest.mark.parametrize("profile", ["535", "550"])
def test_old_drivers_answer_through_their_older_calls(tmp_path: Path, profile: str) -> None:
    with FakeDriver(tmp_path / "driver", gpus=1, profile=profile) as driver:
        driver.set(0, temperature=57)
        (look,) = looks(driver, "look(0)")
        assert look["values"]["temperature.gpu"] == 57
        assert driver.calls("nvmlDeviceGetTemperatureV") == 0
        assert driver.calls("nvmlDeviceGetTemperature") == 1
        assert look["errors"] == {}
        assert "temperature.margin" in look["unsupported"]
        assert ("recovery_action" in look["unsupported"]) is (profile == "535")  # 550 has a reset status


def test_new_drivers_are_asked_the_new_way_only(driver: FakeDriver) -> None:
    driver.set(0, temperature=57)
    (look,) = looks(driver, "look(0)")
    assert look["values"]["temperature.gpu"] == 57
    assert driver.calls("nvmlDeviceGetTemperatureV") == 1
    assert driver.calls("nvmlDeviceGetTemperature") == 0


def test_memory_falls_back_to_the_version_without_reserved(driver: FakeDriver) -> None:
    driver.set(0, memory_used=1 << 30, memory_reserved=1 << 29)
    driver.error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, "nvmlDeviceGetMemoryInfo_v2")
    (look,) = looks(driver, "look(0)")
    assert look["values"]["memory.used"] == (1 << 30) + (1 << 29)  # v1 counts reserved as used
    assert "memory.reserved" not in look["values"]


def test_what_is_not_supported_is_asked_once(driver: FakeDriver) -> None:
    driver.set(0, util_jpeg=None)
    *_, last = looks(driver, "look(0); look(1); look(5)")
    assert driver.calls("nvmlDeviceGetJpgUtilization") == 1
    assert "utilization.jpeg" in last["unsupported"]
    assert last["unsupported"].count("utilization.jpeg") == 1
    assert "utilization.jpeg" not in last["errors"]


def test_a_failure_is_kept_by_path_and_the_value_forgotten(driver: FakeDriver) -> None:
    good, bad, again = looks(
        driver,
        "look(0); pause(); look(1); pause(); look(2)",
        lambda: driver.error(TRANSIENT, "nvmlDeviceGetUtilizationRates"),
        driver.clear,
    )
    assert "utilization.gpu" in good["values"]
    assert "utilization.gpu" not in bad["values"]
    assert bad["errors"] == dict.fromkeys(("utilization.gpu", "utilization.memory"), "Unknown Error")
    assert again["errors"] == {}
    assert "utilization.gpu" in again["values"]


def test_a_rarely_read_value_that_failed_is_asked_again_at_once(driver: FakeDriver) -> None:
    driver.error(TRANSIENT, "nvmlDeviceGetRemappedRows")
    first, second = looks(driver, "look(0); pause(); look(1)", driver.clear)
    assert "row_remap.pending" in first["errors"]
    assert second["values"]["row_remap.pending"] is False


def test_tiers(driver: FakeDriver) -> None:
    def counted(piece: str) -> tuple[int, ...]:
        """Calls of the tiers static, slow, steady and fast."""
        driver.reset_calls()
        looks(driver, piece)
        names = ("MaxPcieLinkWidth", "RemappedRows", "PerformanceState", "UtilizationRates")
        return tuple(driver.calls(f"nvmlDeviceGet{name}") for name in names)

    assert counted("look(0)") == (1, 1, 1, 1)
    assert counted("look(0); look(1); look(2); look(3); look(4)") == (1, 1, 5, 5)
    assert counted("look(0); look(4); look(5)") == (1, 2, 3, 3)
    assert counted("look(0); look(1, force=True)") == (1, 2, 2, 2)
    assert counted("".join(f"look({count}, interval=1.0);" for count in range(7))) == (1, 2, 2, 7)
    assert counted("look(0, interval=1.0); look(1, force=True, interval=1.0)") == (1, 2, 2, 2)


@pytest.mark.parametrize(
    ("field", "path"), [(185, "power.average"), (190, "power.limit_enforced"), (83, "power.energy")]
)
@pytest.mark.parametrize("value", [0, 10**12])
def test_a_field_with_another_value_than_its_call_is_not_read(
    driver: FakeDriver, field: int, path: str, value: int
) -> None:
    """Drivers answer 0 to fields they do not have, and some have changed what a number means."""
    (expected,) = looks(driver, "look(0)")
    driver.set_field(0, field, value)
    for look in looks(driver, "look(0); look(1)"):
        assert look["values"][path] == pytest.approx(expected["values"][path], rel=0.1)


def test_errors_that_only_a_field_counts_as_none_are_unknown(driver: FakeDriver) -> None:
    driver.error(UNSUPPORTED, "nvmlDeviceGetTotalEccErrors")
    (look,) = looks(driver, "look(0)")
    assert "ecc.counts.corrected/volatile/total" in look["unsupported"]


def test_a_field_whose_call_failed_is_compared_with_the_next_sample(driver: FakeDriver) -> None:
    driver.error(TRANSIENT, "nvmlDeviceGetPowerUsage")
    failed, well, _ = looks(driver, "look(0); pause(); look(1); look(2)", driver.clear)
    assert failed["errors"] == {"power.average": "Unknown Error"}
    assert "power.average" in well["values"]
    assert driver.calls("nvmlDeviceGetPowerUsage") == 2


def test_a_field_is_compared_once(driver: FakeDriver) -> None:
    looks(driver, "look(0); look(1); look(2)")
    assert driver.calls("nvmlDeviceGetPowerUsage") == driver.calls("nvmlDeviceGetTotalEnergyConsumption") == 1


def test_more_than_a_batch_of_field_values(driver: FakeDriver) -> None:
    """Sixteen links with many fields each are more than one driver call may ask for."""
    driver.set_field(0, pynvml.NVML_FI_DEV_MEMORY_TEMP, 61, kind="uint")
    piece = """
    from gpuwatch.collect.nvml.reads import field_values
    wanted = [(nvml.NVML_FI_DEV_MEMORY_TEMP, scope) for scope in range(300)]
    values = field_values(nvml, handle, wanted)
    tell([len(values), sorted(set(values.values()))])
    """
    assert run(driver, piece) == [[300, [61]]]
    assert driver.calls("nvmlDeviceGetFieldValues") == 3


@pytest.mark.parametrize(
    ("kind", "written", "read"), [("double", 7, 7.0), ("uint", 7, 7), ("ull", 1 << 40, 1 << 40), ("sll", -5, -5)]
)
def test_field_values_of_every_type(driver: FakeDriver, kind: str, written: int, read: float) -> None:
    driver.set_field(0, pynvml.NVML_FI_DEV_MEMORY_TEMP, written, kind=kind)
    piece = """
    from gpuwatch.collect.nvml.reads import field_values
    key = (nvml.NVML_FI_DEV_MEMORY_TEMP, 0)
    tell(field_values(nvml, handle, [key])[key])
    """
    assert run(driver, piece) == [read]


def test_a_batch_that_fails_as_a_whole_spares_the_calls(driver: FakeDriver) -> None:
    driver.error(TRANSIENT, "nvmlDeviceGetFieldValues")
    spoilt, well = looks(driver, "look(0); pause(); look(1)", driver.clear)
    assert spoilt["errors"]["power.instant"] == "Unknown Error"
    called = ("temperature.gpu", "power.average", "power.energy", "power.limit_enforced")
    assert spoilt["values"].keys() >= {*called, "ecc.counts.corrected/volatile/total"}
    assert well["errors"] == {}
    assert well["values"].keys() >= {*called, "power.instant"}
    assert driver.calls("nvmlDeviceGetPowerUsage") == 2  # in place of the field, and beside it


@pytest.mark.parametrize(
    ("spoil", "kind"),
    [
        (lambda driver: driver.lose(0), Failure.LOST),
        (lambda driver: driver.reload(), Failure.DRIVER_GONE),
        (lambda driver: driver.error(TRANSIENT, "*", gpu=0), Failure.TRANSIENT),
    ],
)
def test_what_concerns_the_whole_gpu_is_raised(driver: FakeDriver, spoil: Any, kind: Failure) -> None:
    piece = """
    from gpuwatch.collect.nvml.library import NvmlFailure
    look(0)
    pause()
    try:
        reader.read(tiers_due(1))
    except NvmlFailure as error:
        tell(error.kind.value)
    """
    *_, raised = looks(driver, piece, lambda: spoil(driver))
    assert raised == kind.value


def test_an_absent_memory_sensor_and_an_unknown_state_are_unknown(driver: FakeDriver) -> None:
    driver.set(0, pstate=32)
    driver.set_field(0, pynvml.NVML_FI_DEV_MEMORY_TEMP, 0, kind="uint")
    (look,) = looks(driver, "look(0)")
    assert {"temperature.memory", "performance_state"}.isdisjoint(look["values"])


class Older:
    """Bindings of an older release: a few constants and calls fewer."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int]] = []

    def nvmlDeviceGetFieldValues(self, handle: Any, wanted: list[tuple[int, int]]) -> list[Any]:
        self.asked += wanted
        answers = [pynvml.c_nvmlFieldValue_t() for _ in wanted]
        for answer in answers:
            answer.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            answer.value.uiVal = 70_000
        return answers


def test_older_bindings_lack_calls_and_no_fields() -> None:
    older = Older()
    reader = FieldReader(older, None, FIELDS)
    assert reader.read()["power.instant"] == 70.0
    assert (pynvml.NVML_FI_DEV_POWER_INSTANT, 0) in older.asked
    assert {"temperature.gpu", "memory.used"} <= set(reader.unsupported)


def test_paths_are_written_once_each() -> None:
    paths = [path for field in FIELDS for path in field.paths]
    assert len(paths) == len(set(paths))


def test_a_second_way_may_be_a_field_value() -> None:
    field = FieldRow(("power.energy",), Tier.FAST, (NvmlCall("nvmlNoSuchCall"), FieldId("DEV_POWER_INSTANT")))
    assert FieldReader(Older(), None, (field,)).read() == {"power.energy": 70_000}


@pytest.mark.parametrize(("code", "kind"), KINDS.items())
def test_codes_have_their_kinds_and_words(code: int, kind: Failure) -> None:
    found = failure(code)
    assert found.kind is kind
    assert str(found) == error_text(code) != f"NVML error {code}"


def test_an_unknown_code_is_transient() -> None:
    assert failure(12345).kind is Failure.TRANSIENT
    assert str(failure(12345)) == "NVML error 12345"


def test_a_function_the_bindings_lack_is_not_found() -> None:
    with pytest.raises(NvmlFailure) as raised:
        ask(pynvml, "nvmlDeviceGetWeather")
    assert raised.value.kind is Failure.UNSUPPORTED


def test_a_library_mismatch_is_a_function_not_found() -> None:
    """pynvml raises a plain Exception where a process list lacks its newest symbol."""

    class Old:
        def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> Any:
            raise pynvml.NVMLLibraryMismatchError("unversioned function called")

    with pytest.raises(NvmlFailure) as raised:
        ask(Old(), "nvmlDeviceGetComputeRunningProcesses", None)
    assert raised.value.kind is Failure.UNSUPPORTED


@pytest.mark.parametrize(
    ("value", "read"), [(b"535.216", "535.216"), ("", None), ("N/A", None), (b"\xff", "�"), ("x", "x")]
)
def test_texts(value: Any, read: str | None) -> None:
    assert text(value) == read


def test_nesting_leaves_out_the_unknown() -> None:
    flat = {"power.average": 70.0, "power.instant": None, "ecc.counts.corrected/volatile/total": 0, "pstate": None}
    assert nest(flat) == {"power": {"average": 70.0}, "ecc": {"counts": {"corrected/volatile/total": 0}}}
