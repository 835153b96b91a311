"""The tuner's rows: counters there at 0, nothing said of what is not known, every value with its labels."""

from gpuwatch.metrics.exposition import Encoder
from gpuwatch.tuning.model.setting import KNOBS, Actuation, Setting, Trigger
from gpuwatch.tuning.model.status import BudgetState, GpuTuning, Obstacle, ObstacleReason, TunerState, TuningState
from gpuwatch.tuning.service.metrics import COUNTED, TUNER_METRICS

LIMIT = Setting(uuid="GPU-b", knob="power_limit", original=700.0, applied=(500.0,), at=1.0, boot_id="b", driver="d")
OBSTACLES = (
    Obstacle(reason=ObstacleReason.FAULT, message="nvlink_errors"),
    Obstacle(reason=ObstacleReason.MIG, message="MIG"),
)
BUSY = TunerState(
    mode="enforce",
    guard=False,
    consents_at=3.0,
    stopped="stopped by ada",
    budget=BudgetState(budget=1800.0, how="shared", limits=1790.0, draw=None),
    gpus=(
        GpuTuning(
            index=0,
            uuid="GPU-a",
            state=TuningState.HOLDING,
            foreign={"power_limit": False},
            clock_cap=1.41e9,
            bound=0.05,
            slowdown=0.03,
            slowdown_upper=0.045,
            joules_saved=120.5,
        ),
        GpuTuning(
            index=1,
            uuid="GPU-b",
            state=TuningState.REFUSED,
            obstacles=OBSTACLES,
            foreign={"power_limit": True},
            power_limit=500.0,
        ),
        GpuTuning(index=2, uuid="GPU-c", state=TuningState.IDLE),
    ),
    view_at=5.0,
    actuation=Actuation(settings=(LIMIT,), restores={Trigger.GUARD: 3}),
    config_error="bad",
)


def page(state: TunerState) -> list[str]:
    lines = Encoder().encode(row.family(state) for row in TUNER_METRICS).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_before_the_first_view_counters_are_zero_and_the_rest_is_silent():
    shown = page(TunerState(mode="observe", actuation=Actuation()))
    counters = [line for line in shown if "_total" in line]
    assert len(counters) == len(KNOBS) * len(COUNTED) + len(Trigger)
    assert all(line.endswith(" 0") for line in counters)
    silent = ("tuner_state", "tuner_conflict", "view_timestamp", "guard_up", "consents", "budget", "cap", "ratio")
    assert not any(name in line for line in shown for name in silent)
    assert "gpuwatch_tuner_stopped 0" in shown


def test_what_a_tuner_knows_is_reported():
    shown = page(BUSY)
    for line in (
        'gpuwatch_tuner_mode{mode="enforce"} 1',
        'gpuwatch_tuner_state{gpu="0",uuid="GPU-a",state="holding"} 1',
        'gpuwatch_tuner_state{gpu="1",uuid="GPU-b",state="refused",reason="fault"} 1',
        'gpuwatch_tuner_state{gpu="2",uuid="GPU-c",state="idle"} 1',
        'gpuwatch_tuner_conflict{gpu="0",uuid="GPU-a",knob="power_limit"} 0',
        'gpuwatch_tuner_conflict{gpu="1",uuid="GPU-b",knob="power_limit"} 1',
        'gpuwatch_tuner_clock_cap_hertz{gpu="0",uuid="GPU-a"} 1410000000.0',
        'gpuwatch_tuner_power_limit_watts{gpu="1",uuid="GPU-b"} 500.0',
        'gpuwatch_tuner_estimated_slowdown_ratio{gpu="0",uuid="GPU-a",bound="estimate"} 0.03',
        'gpuwatch_tuner_estimated_slowdown_ratio{gpu="0",uuid="GPU-a",bound="upper"} 0.045',
        'gpuwatch_tuner_promised_slowdown_ratio{gpu="0",uuid="GPU-a"} 0.05',
        'gpuwatch_tuner_energy_saved_joules_total{gpu="0",uuid="GPU-a"} 120.5',
        'gpuwatch_tuner_energy_saved_joules_total{gpu="2",uuid="GPU-c"} 0.0',
        'gpuwatch_tuner_settings{knob="power_limit"} 1',
        'gpuwatch_tuner_settings{knob="locked_clocks"} 0',
        'gpuwatch_tuner_restores_total{trigger="guard"} 3',
        'gpuwatch_tuner_restores_total{trigger="command"} 0',
        "gpuwatch_tuner_budget_watts 1800.0",
        "gpuwatch_tuner_budget_limits_watts 1790.0",
        "gpuwatch_tuner_guard_up 0",
        "gpuwatch_tuner_stopped 1",
        "gpuwatch_tuner_consents_timestamp_seconds 3.0",
        "gpuwatch_tuner_view_timestamp_seconds 5.0",
        "gpuwatch_tuner_config_last_reload_successful 0",
    ):
        assert line in shown
    assert not any('uuid="GPU-c"' in line for line in shown if "conflict" in line)


def test_what_is_not_known_of_a_gpu_or_a_budget_is_not_reported():
    shown = page(BUSY)
    for name, gpus in (("clock_cap_hertz", 1), ("power_limit_watts", 1), ("promised", 1), ("estimated", 2)):
        assert len([line for line in shown if f"tuner_{name}" in line]) == gpus
    assert not any("budget_draw" in line for line in shown)
    assert not any("budget" in line for line in page(TunerState(mode="enforce")))


def test_a_gpu_is_in_one_state_at_a_time():
    subjects = [line.split(",state=")[0] for line in page(BUSY) if "tuner_state{" in line]
    assert len(subjects) == len(set(subjects)) == len(BUSY.gpus)


def test_a_record_that_cannot_be_read_is_not_an_empty_one():
    shown = page(TunerState(mode="observe", actuation=None))
    assert not any("tuner_settings" in line or "restores" in line for line in shown)
