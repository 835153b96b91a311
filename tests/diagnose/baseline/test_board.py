"""Heat, clocks and power limits of GPUs at their thresholds, and what of clock events is held against whom."""

import pytest

from gpuwatch.diagnose.baseline.expectation import Expectation
from gpuwatch.diagnose.model import CheckStatus
from tests.diagnose.hosts import Host

TOP = 2000e6


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.mark.parametrize(
    ("degrees", "result"), [(86.0, CheckStatus.PASS), (87.0, CheckStatus.WARN), (88.0, CheckStatus.WARN)]
)
@pytest.mark.parametrize(
    ("sensor", "limit", "words"),
    [("gpu", "threshold_slowdown", "slowdown"), ("memory", "threshold_memory_max", "the memory's limit")],
)
def test_a_gpu_at_its_limit_is_too_hot(host, sensor, limit, words, degrees, result):
    host.gpu(4, temperature={sensor: degrees, limit: 87.0})
    found = host.diagnose().of("G06")
    assert found.result is result
    assert result is CheckStatus.PASS or found.message == f"GPU 4: {degrees:.0f} °C, {words} at 87 °C"


def test_the_hottest_is_named_though_none_is_too_hot(host):
    host.gpu(5, temperature={"gpu": 71.0})
    assert host.diagnose().of("G06").message == "the hottest has 71 °C (GPU 5)"


EVENTS = {
    ("sw_thermal_slowdown",): "GPU 6: the driver lowers the clocks because of heat",
    ("hw_slowdown",): "GPU 6: the hardware lowers the clocks, for heat or power",
    ("hw_slowdown", "hw_thermal_slowdown"): None,  # the agent's rule judges it by how long it lasts
    ("hw_slowdown", "hw_power_brake_slowdown"): None,
    ("sw_power_cap",): None,
    (): None,
}


@pytest.mark.parametrize("reasons", EVENTS, ids=" ".join)
def test_what_holds_clocks_down_is_reported_by_its_name(host, reasons):
    host.gpu(6, clock_events={"active": dict.fromkeys(reasons, True) | {"gpu_idle": False}})
    found = host.diagnose().of("G07")
    message = EVENTS[reasons]
    assert (found.result, found.message) == (
        (CheckStatus.WARN, message) if message else (CheckStatus.PASS, "nothing holds clocks down but load and limits")
    )


def at_work(host, **changes):
    """All GPUs work at their highest clock; GPU 3 is other."""
    for index in range(8):
        mine = changes if index == 3 else {}
        host.gpu(index, **{"utilization": {"gpu": 1.0}, "clocks": {"sm": TOP}, "clock_events": {"active": {}}} | mine)
    return host.diagnose().of("G09")


@pytest.mark.parametrize(
    ("share", "result"), [(0.79, CheckStatus.WARN), (0.8, CheckStatus.PASS), (1.0, CheckStatus.PASS)]
)
def test_a_fifth_below_its_siblings_is_slow(host, share, result):
    assert at_work(host, clocks={"sm": share * TOP}).result is result


SLOW = {"clocks": {"sm": TOP / 4}}
SPARED = {
    "it has a reason": {"clock_events": {"active": {"sw_power_cap": True}}},
    "it is of another model": {"identity": {"name": "NVIDIA L4"}},
    "it shows a desktop": {"display_active": True, "performance_state": 8},
    "nobody knows its clock": {"clocks": {"sm": None}},
}


@pytest.mark.parametrize("why", SPARED.values(), ids=SPARED)
def test_a_slow_gpu_may_have_a_reason(host, why):
    assert at_work(host, **SLOW).gpus == (3,)
    assert at_work(host, **SLOW | {"clock_events": {"active": {"gpu_idle": True}}}).gpus == (3,)
    assert at_work(host, **SLOW | why).result is CheckStatus.PASS


def test_work_begins_where_the_settings_say(host):
    least = host.config.checks.stuck_utilization
    assert at_work(host, **SLOW, utilization={"gpu": least}).gpus == (3,)
    assert at_work(host, **SLOW, utilization={"gpu": least - 0.01}).result is CheckStatus.PASS


def test_a_limit_of_the_baseline_is_no_fault(host):
    host.gpu(2, power={"limit_configured": 400.0, "limit_enforced": 400.0})
    assert host.diagnose().of("G08").gpus == (2,)
    host.expect = Expectation(power_limit=400.0)
    assert host.diagnose().of("G08").gpus == ()


def test_of_unknown_limits_nothing_is_reported(host):
    host.gpu(2, power={"limit_configured": None, "limit_enforced": None})
    assert host.diagnose().of("G08").result is CheckStatus.PASS
    host.gpu(2, power={"limit_configured": None, "limit_enforced": 400.0})
    assert host.diagnose().of("G08").gpus == (2,)
    for index in range(8):
        host.gpu(index, power={"limit_default": None})
    assert host.diagnose().of("G08").message == "no GPU reports its power limits"
