"""The remediator's rows: counters there at 0, nothing said of what is not known, every value with its label."""

from gpuwatch.kube import errors as kube_errors
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.remediation.model import ACTIONS, Blocked, BlockReason, NodeStage, Plan, RemediatorState
from gpuwatch.remediation.service.pages import COUNTED, ERRORS, REMEDIATOR_METRICS

FRESH = RemediatorState(node="n1", mode="observe")
SICK = RemediatorState(
    node="n1",
    mode="enforce",
    plan=Plan(
        node="n1",
        at=5.0,
        stage=NodeStage.DRAINING,
        blocked=(Blocked(reason=BlockReason.PDB, message="not yet"),),
        message="w",
    ),
    planned_at=5.0,
    slots=3,
    slots_used=2,
    actions={("taint", "done"): 4},
    errors={"TooMany": 2},
    config_error="bad",
    boot_id="b1",
)


def page(state: RemediatorState) -> list[str]:
    lines = Encoder().encode(row.family(state) for row in REMEDIATOR_METRICS).decode().splitlines()
    return [line for line in lines if not line.startswith("#")]


def test_before_the_first_plan_counters_are_zero_and_the_rest_is_silent():
    shown = page(FRESH)
    counters = [line for line in shown if "actions_total" in line]
    assert len(counters) == len(ACTIONS) * len(COUNTED)
    assert all(line.endswith(" 0") for line in counters)
    assert not any(
        name in line for line in shown for name in ("quarantined ", "slots", "plan_timestamp", "stage", "boot_info")
    )


def test_a_quarantined_node_reports_it():
    shown = page(SICK)
    for line in (
        "gpuwatch_remediator_quarantined 1.0",
        'gpuwatch_remediator_boot_info{boot_id="b1"} 1',
        'gpuwatch_remediator_stage{stage="draining"} 1.0',
        'gpuwatch_remediator_stage{stage="healthy"} 0.0',
        'gpuwatch_remediator_blocked{reason="pdb"} 1.0',
        'gpuwatch_remediator_blocked{reason="budget"} 0.0',
        'gpuwatch_remediator_budget_slots{state="total"} 3',
        'gpuwatch_remediator_budget_slots{state="used"} 2',
        'gpuwatch_remediator_actions_total{action="taint",result="done"} 4',
        'gpuwatch_remediator_api_errors_total{error="TooMany"} 2',
        "gpuwatch_remediator_plan_timestamp_seconds 5.0",
        "gpuwatch_remediator_config_last_reload_successful 0",
    ):
        assert line in shown


def test_every_kind_of_refusal_is_counted():
    kinds = {
        name
        for name, kind in vars(kube_errors).items()
        if isinstance(kind, type) and issubclass(kind, kube_errors.KubeError) and kind is not kube_errors.KubeError
    }
    assert set(ERRORS) == kinds
