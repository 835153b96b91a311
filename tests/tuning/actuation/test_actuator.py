"""The actuator: what is ordered is recorded before it is set, never above what was there, and one GPU holds up no
other.
"""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grimp
import pynvml
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwatch.cli.console.session import Session
from gpuwatch.cli.tune.driver_access import nvml_actuator
from gpuwatch.config import Config, TuningConfig
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.tuning.actuation.record import MOST_VALUES, SettingsRecord
from gpuwatch.tuning.model.setting import ApplyResult, OrderOutcome, SettingOrder, Trigger
from tests.cpu_clock import unhindered
from tests.remediation.model.remediating import FakeClock
from tests.tuning.actuation.actuator_bench import DEADLINE, GPU, OTHER, SETTERS, Bench
from tests.tuning.service.tuning import clocks, limit
from tests.waiting import until


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.knobs.release()


def test_what_is_ordered_is_set_and_recorded_and_restored(bench: Bench) -> None:
    assert bench.limit(500.0, pod_uid="u") == ApplyResult(
        order=SettingOrder(uuid=GPU, knob="power_limit", value=500.0, pod_uid="u"),
        outcome=OrderOutcome.DONE,
        in_force=500.0,
    )
    assert bench.cap(1200).in_force == 1.2e9
    assert (bench.knobs.limits[GPU], bench.knobs.locked) == (500_000, {GPU: 1200})
    at = FakeClock().time()
    assert bench.recorded() == [limit(GPU, at=at, pod_uid="u"), clocks(GPU, at=at)]
    assert [bench.limit(None).outcome, bench.cap(None).outcome] == [OrderOutcome.DONE] * 2
    assert (bench.knobs.limits[GPU], bench.knobs.locked) == (700_000, {})
    assert not bench.recorded()
    assert bench.record.read().restores == {Trigger.TUNER: 2}


def test_what_nobody_has_set_is_not_unlocked(bench: Bench) -> None:
    """An admin's lock cannot be read, so only a record of ours lets us unlock."""
    bench.knobs.locked[GPU] = 1000
    assert bench.cap(None).outcome is OrderOutcome.DONE
    assert bench.cap(None, keep=True).outcome is OrderOutcome.DONE
    assert not bench.knobs.calls


def test_a_setting_that_is_kept_is_out_of_force_but_recorded_and_set_again_without_a_write(bench: Bench) -> None:
    bench.cap(1200)
    written = bench.record.path.stat().st_mtime_ns
    for _ in range(3):
        assert bench.cap(None, keep=True) == ApplyResult(
            order=SettingOrder(uuid=GPU, knob="locked_clocks", value=None, keep=True),
            outcome=OrderOutcome.DONE,
            message="the clocks are unlocked",
        )
        assert not bench.knobs.locked
        assert bench.applied() == {"locked_clocks": (1.2e9,)}
        assert bench.cap(1200).outcome is OrderOutcome.DONE
    assert bench.record.path.stat().st_mtime_ns == written


def test_orders_of_one_gpu_keep_their_order(bench: Bench) -> None:
    orders = [SettingOrder(uuid=GPU, knob="power_limit", value=value) for value in (500.0, 400.0, None, 300.0)]
    assert {each.outcome for each in bench.actuator.apply(orders)} == {OrderOutcome.DONE}
    assert [value for _, _, value in bench.knobs.sets] == [500_000, 400_000, 700_000, 300_000]


def test_one_session_stays_open_between_orders_and_ends_with_the_actuator(bench: Bench) -> None:
    for _ in range(3):
        bench.limit(500.0)
        bench.limit(500.0, OTHER)
        assert bench.knobs.sessions == 1
    bench.knobs.errors["nvmlDeviceGetPowerManagementLimit"] = pynvml.NVML_ERROR_UNINITIALIZED
    assert bench.limit(400.0).outcome is OrderOutcome.FAILED
    assert bench.knobs.sessions == 0, "a driver that was loaded anew is met only by a new first session"
    bench.knobs.errors.clear()
    assert bench.limit(400.0).outcome is OrderOutcome.DONE
    bench.actuator.close()
    assert bench.knobs.sessions == 0


# ---- S1: never above the original ----


@pytest.mark.parametrize("watts", [701.1, 900.0, 1e6, float("inf"), float("nan"), 198.0, 0.0, -5.0])
def test_s1_a_limit_above_the_original_or_below_the_least_is_refused(bench: Bench, watts: float) -> None:
    assert bench.limit(watts).outcome is OrderOutcome.REFUSED
    assert not bench.knobs.calls
    assert not bench.recorded()


def test_s1_the_original_is_what_was_configured_not_what_the_board_could(bench: Bench) -> None:
    bench.knobs.limits[GPU] = 600_000
    refused = bench.limit(650.0)
    assert (refused.outcome, refused.message) == (OrderOutcome.REFUSED, "650 W is above the original 600 W")
    assert bench.limit(500.0).outcome is OrderOutcome.DONE
    assert bench.limit(650.0).outcome is OrderOutcome.REFUSED
    bench.limit(None)
    assert bench.knobs.limits[GPU] == 600_000


def test_s1_what_is_above_by_a_rounding_only_is_clipped(bench: Bench) -> None:
    assert bench.limit(700.5).in_force == 700.0


@pytest.mark.parametrize("megahertz", [1981, 195, 0, -210, float("inf"), float("nan")])
def test_s1_a_clock_that_the_gpu_does_not_have_is_refused(bench: Bench, megahertz: float) -> None:
    assert bench.cap(megahertz).outcome is OrderOutcome.REFUSED
    assert not bench.knobs.calls
    assert not bench.recorded()


def test_s1_the_original_is_read_before_the_first_write(bench: Bench) -> None:
    names: list[str] = []
    bench.knobs.before = lambda name, args: names.append(name)
    bench.limit(500.0)
    assert names.index("nvmlDeviceGetPowerManagementLimit") < names.index("nvmlDeviceSetPowerManagementLimit")


DEEDS = st.one_of(
    st.tuples(st.just("limit"), st.sampled_from([None, 100.0, 200.0, 350.0, 500.0, 600.0, 650.0, 700.0, 900.0])),
    st.tuples(st.just("cap"), st.sampled_from([None, 100.0, 210.0, 1200.0, 1980.0, 2500.0])),
    st.tuples(st.just("pause"), st.sampled_from(["limit", "cap"])),
    st.tuples(st.just("guard"), st.none()),
    st.tuples(st.just("admin"), st.sampled_from([250, 400, 650])),
    st.tuples(st.just("deaf"), st.booleans()),
    st.tuples(st.just("broken"), st.sampled_from([None, *SETTERS, "nvmlDeviceGetPowerManagementLimit"])),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(DEEDS, max_size=14))
def test_s1_s2_whatever_happens_nothing_is_raised_and_all_that_is_ours_is_recorded(
    tmp_path: Path, reports: list[tuple[str, Any]]
) -> None:
    (tmp_path / "tuner/actuation.json").unlink(missing_ok=True)
    bench, original = Bench(tmp_path), 650
    bench.knobs.limits[GPU] = original * 1000
    for deed, value in reports:
        if deed in ("limit", "cap"):
            getattr(bench, deed)(value)
        elif deed == "pause":
            getattr(bench, value)(None, keep=True)
        elif deed == "guard":
            bench.guard.restore()
        elif deed == "admin":
            original = max(original, value)  # whoever sets it by hand may; gpuwatch may not go above either
            bench.knobs.limits[GPU] = value * 1000
        elif deed == "deaf":
            bench.knobs.deaf = value
        else:
            bench.knobs.errors = {value: pynvml.NVML_ERROR_UNKNOWN} if value else {}
        ours = [each for each in bench.recorded() if each.knob == "locked_clocks"]
        assert not bench.knobs.locked or bench.knobs.locked[GPU] * 1e6 in ours[0].applied
    for knob, _, value in bench.knobs.sets:
        assert value is None or value <= (original * 1000 if knob == "power_limit" else 1980)
    bench.knobs.errors, bench.knobs.deaf = {}, False
    bench.actuator.restore(Trigger.EXIT)
    assert (bench.knobs.locked, bench.recorded()) == ({}, [])


# ---- S2: recorded before it is set ----


def test_s2_it_is_on_the_disk_when_the_driver_is_asked(bench: Bench, tmp_path: Path) -> None:
    seen: list[dict[str, tuple[float, ...]]] = []

    def observe(name: str, args: tuple[Any, ...]) -> None:
        if name in SETTERS:
            seen.append({each.knob: each.applied for each in SettingsRecord(tmp_path).read().settings})

    bench.knobs.before = observe
    bench.limit(500.0)
    bench.limit(400.0)
    bench.cap(1200)
    assert seen == [
        {"power_limit": (500.0,)},
        {"power_limit": (400.0, 500.0)},
        {"power_limit": (400.0,), "locked_clocks": (1.2e9,)},
    ]


def test_s2_what_cannot_be_recorded_is_not_set(bench: Bench) -> None:
    with bench.record.lock(0.0) as held:
        assert held
        results = bench.limit(500.0)
    assert results.outcome is OrderOutcome.REFUSED
    assert "another process holds" in results.message
    full = bench.record.path.with_suffix(".json.partial")
    full.mkdir()
    assert bench.limit(500.0).outcome is OrderOutcome.FAILED
    full.rmdir()
    bench.record.path.write_text("{")
    assert bench.limit(500.0).outcome is OrderOutcome.FAILED
    assert not bench.knobs.calls


def test_a_driver_that_confirms_nothing_is_not_asked_for_ever(bench: Bench) -> None:
    bench.knobs.deaf = True
    outcomes = [bench.limit(500.0 - number).message for number in range(40)]
    assert "not confirmed" in outcomes[-1]
    assert len(bench.applied()["power_limit"]) == MOST_VALUES
    bench.knobs.deaf = False
    assert bench.limit(None).outcome is OrderOutcome.DONE


def test_what_the_driver_refuses_for_good_is_not_kept_in_the_record(bench: Bench) -> None:
    for name in SETTERS:
        bench.knobs.errors[name] = pynvml.NVML_ERROR_NO_PERMISSION
    for results in (bench.limit(500.0), bench.cap(1200)):
        assert results.outcome is OrderOutcome.FAILED
        assert "CAP_SYS_ADMIN" in results.message
    assert not bench.recorded()


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_NO_PERMISSION, pynvml.NVML_ERROR_NOT_SUPPORTED])
def test_s2_what_is_in_force_stays_recorded_when_the_driver_refuses_another_value(bench: Bench, code: int) -> None:
    bench.limit(500.0)
    bench.cap(1200)
    bench.knobs.errors = dict.fromkeys(SETTERS, code)
    assert [bench.limit(400.0).outcome, bench.cap(1500).outcome] == [OrderOutcome.FAILED] * 2
    assert 500.0 in bench.applied()["power_limit"]
    assert 1.2e9 in bench.applied()["locked_clocks"]
    bench.knobs.errors = {}
    assert [bench.limit(None).outcome, bench.cap(None).outcome] == [OrderOutcome.DONE] * 2
    assert (bench.knobs.limits[GPU], bench.knobs.locked) == (700_000, {})


# ---- S12: an observing tuner has no actuator ----


@pytest.mark.parametrize("mode", ["off", "observe"])
def test_s12_in_no_other_mode_than_enforce_there_is_an_actuator(tmp_path: Path, mode: Any) -> None:
    config = Config(state_dir=str(tmp_path), tuning=TuningConfig(mode=mode))
    with pytest.raises(UsageError, match="only enforce does"), nvml_actuator(Session(), config):
        pytest.fail("an actuator was built")


def test_a_second_tuner_gets_no_actuator(tmp_path: Path) -> None:
    config = Config(state_dir=str(tmp_path), tuning=TuningConfig(mode="enforce"))
    with SettingsRecord(tmp_path).lock_tuner(0.0) as held:
        assert held
        with pytest.raises(UsageError, match=r"another tuner .* cannot be opened"), nvml_actuator(Session(), config):
            pytest.fail("a second actuator was built")


def test_s12_only_one_module_can_reach_the_actuator_and_the_knobs() -> None:
    graph = grimp.build_graph("gpuwatch", cache_dir=None)
    assert graph.find_modules_that_directly_import("gpuwatch.tuning.actuation.actuator") == {
        "gpuwatch.cli.tune.driver_access"
    }
    assert graph.find_modules_that_directly_import("gpuwatch.tuning.actuation.driver") == {
        "gpuwatch.cli.tune.driver_access"
    }
    wired = {"gpuwatch.cli.tuner", "gpuwatch.cli.tune.orders", "gpuwatch.cli.demo.tuner"}
    assert graph.find_modules_that_directly_import("gpuwatch.cli.tune.driver_access") == wired
    observing = ("gpuwatch.tuning.service.tuner", "gpuwatch.tuning.service.process", "gpuwatch.tuning.service.metrics")
    for role in observing:
        assert not graph.chain_exists(role, "gpuwatch.tuning.actuation.actuator")
        assert not graph.chain_exists(role, "gpuwatch.tuning.actuation.driver")


# ---- one GPU and the others ----


def test_a_gpu_that_hangs_is_silent_holds_up_no_other_and_is_not_asked_again(tmp_path: Path) -> None:
    timeout = 3.0
    bench = Bench(tmp_path, timeout=timeout)
    bench.knobs.hanging.add(GPU)
    asked: list[str] = []
    bench.knobs.before = lambda name, args: asked.extend(args[:1]) if name.endswith("ByUUID") else None
    orders = [SettingOrder(uuid=uuid, knob="power_limit", value=500.0) for uuid in (GPU, OTHER)]
    try:
        start = unhindered()
        assert [each.outcome for each in bench.actuator.apply(orders)] == [OrderOutcome.TIMEOUT, OrderOutcome.DONE]
        for _ in range(3):
            assert bench.limit(400.0).outcome is OrderOutcome.TIMEOUT
        with pytest.raises(GpuwatchError, match="does not answer"):
            bench.actuator.capabilities(GPU)
        assert unhindered() - start < 2 * timeout, "only the first order waits"
        assert asked.count(GPU) == 1
    finally:
        bench.knobs.release()
    until(lambda: bench.limit(None).outcome is OrderOutcome.DONE)
    assert ("power_limit", GPU) not in bench.knobs.calls, "an order that nobody waits for is not carried out"


def test_a_setter_that_comes_through_late_is_recorded(tmp_path: Path) -> None:
    bench, late = Bench(tmp_path, timeout=0.2), threading.Event()
    bench.once_at("nvmlDeviceSetPowerManagementLimit", lambda: late.wait(DEADLINE))
    orders = [SettingOrder(uuid=GPU, knob="power_limit", value=value) for value in (500.0, 400.0)]
    assert [each.outcome for each in bench.actuator.apply(orders)] == [OrderOutcome.TIMEOUT] * 2
    assert bench.applied() == {"power_limit": (500.0,)}
    late.set()
    until(lambda: bench.limit(None).outcome is OrderOutcome.DONE)
    assert [value for _, _, value in bench.knobs.sets] == [500_000, 700_000]


def test_what_may_be_set(bench: Bench) -> None:
    capabilities = bench.actuator.capabilities(GPU)
    assert (capabilities.clocks[0], capabilities.clocks[1], capabilities.clocks[-1]) == (1.98e9, 1.965e9, 2.1e8)
    assert (capabilities.limit, capabilities.limit_default, capabilities.limit_min, capabilities.limit_max) == (
        700.0,
        700.0,
        200.0,
        700.0,
    )
    with pytest.raises(GpuwatchError, match="nvmlDeviceGetHandleByUUID"):
        bench.actuator.capabilities("GPU-9")


def test_a_gpu_whose_clocks_cannot_be_locked_has_none_from_then_on(bench: Bench) -> None:
    bench.knobs.errors["nvmlDeviceSetGpuLockedClocks"] = pynvml.NVML_ERROR_NOT_SUPPORTED
    assert bench.cap(1200).outcome is OrderOutcome.FAILED
    assert not bench.recorded()
    assert (bench.actuator.capabilities(GPU).clocks, bool(bench.actuator.capabilities(OTHER).clocks)) == ((), True)
