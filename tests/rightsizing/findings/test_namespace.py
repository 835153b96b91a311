"""Quotas and reserved nodes: what is advised, never below what is used, and only where the whole cluster is seen."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.rightsizing.model.recommendation import FindingKind, RecommendedAction
from gpuwatch.rightsizing.model.usage import DeviceAllocation, FleetFacts, GpuFacts, NamespaceUsage
from tests.rightsizing.findings.rightsizing_cases import DAY, a_hold, a_namespace, a_workload, found


def whole(*uses: NamespaceUsage, gpus: tuple[GpuFacts, ...] = ()) -> FleetFacts:
    """A cluster that is seen as a whole."""
    return FleetFacts(namespaces=uses, gpus=gpus, whole=True)


def test_a_quota_comes_down_to_what_is_needed() -> None:
    item = found(fleet=whole(a_namespace()))[FindingKind.QUOTA_SLACK]

    assert item.action is RecommendedAction.CHANGE_QUOTA
    assert item.change.hard == {"nvidia.com/gpu": 10}
    assert item.change.quota == "gpus"
    assert item.savings.gpu_hours_per_day == 0
    assert item.target.namespace == "nlp"


@pytest.mark.parametrize(
    ("change", "hard"),
    [({"used": 12, "active": (1.0,) * 14}, 12), ({"held": 11}, 11), ({"active": (0.0,) * 14, "used": 0, "held": 0}, 1)],
)
def test_it_is_never_below_what_is_there(change: dict[str, Any], hard: int) -> None:
    item = found(fleet=whole(a_namespace(**change)))[FindingKind.QUOTA_SLACK]

    assert item.change.hard == {"nvidia.com/gpu": hard}


def test_what_is_promised_and_not_seen_is_taken_to_work_as_much() -> None:
    item = found(fleet=whole(a_namespace(hard=40, used=16, held=8)))[FindingKind.QUOTA_SLACK]

    assert item.change.hard == {"nvidia.com/gpu": 19}


def test_what_floating_point_adds_costs_no_gpu() -> None:
    """1.15 * 20 * 27 / 23 is 27, and 27.000000000000004 to a computer."""
    item = found(fleet=whole(a_namespace(hard=40, used=27, held=23, active=(20.0,) * 14)))[FindingKind.QUOTA_SLACK]

    assert item.change.hard == {"nvidia.com/gpu": 27}


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"hard": None}, id="there is none"),
        pytest.param({"used": None}, id="nobody knows what is used"),
        pytest.param({"days": 6.0}, id="it was not seen for a week"),
        pytest.param({"active": ()}, id="nobody knows what was at work"),
        pytest.param({"hard": 10}, id="it is right"),
        pytest.param({"hard": 4}, id="it is too small: it is never raised"),
    ],
)
def test_a_quota_stays_when(change: dict[str, Any]) -> None:
    assert FindingKind.QUOTA_SLACK not in found(fleet=whole(a_namespace(**change)))


def test_one_node_does_not_know_the_namespace() -> None:
    assert not found(fleet=replace(whole(a_namespace()), whole=False))


@given(
    hard=st.integers(0, 100) | st.none(),
    used=st.integers(0, 120) | st.none(),
    held=st.integers(0, 120),
    active=st.lists(st.floats(0, 200), max_size=14),
    days=st.floats(0, 30),
)
def test_no_quota_is_advised_below_what_is_used_or_above_what_it_is(
    hard: int | None, used: int | None, held: int, active: list[float], days: float
) -> None:
    use = a_namespace(hard=hard, used=used, held=held, active=tuple(active), days=days)
    items = found(fleet=whole(use))

    if FindingKind.QUOTA_SLACK in items:
        advised = items[FindingKind.QUOTA_SLACK].change.hard["nvidia.com/gpu"]
        assert hard is not None
        assert used is not None
        assert max(used, held, *active) <= advised < hard


def nodes(*names: str, size: int = 2) -> tuple[GpuFacts, ...]:
    """Nodes with so many GPUs each."""
    return tuple(GpuFacts(node=name, uuid=f"{name}-{index}") for name in names for index in range(size))


def holds(gpus: tuple[GpuFacts, ...]) -> tuple[DeviceAllocation, ...]:
    """Pods that hold all of these."""
    return tuple(a_hold(pod=f"pod-{gpu.uuid}", gpu=gpu.uuid, node=gpu.node) for gpu in gpus)


def test_nodes_that_a_namespace_always_fills_are_to_be_reserved() -> None:
    gpus = nodes("node-a", "node-b", "node-c")
    steady = a_namespace(quota=None, hard=None, used=None, steady=5)
    item = found(a_workload(*holds(gpus[:5])), fleet=whole(steady, gpus=gpus))[FindingKind.STEADY_LOAD]

    assert item.action is RecommendedAction.RESERVE
    assert item.target.nodes == ("node-a", "node-b")
    assert item.target.namespace == "nlp"


@pytest.mark.parametrize(
    ("change", "taken"),
    [
        pytest.param({"steady": 1}, 4, id="less than a node is always at work"),
        pytest.param({"days": 6.0}, 4, id="it was not seen for a week"),
        pytest.param({}, 1, id="it holds no whole node"),
        pytest.param({"namespace": "vision"}, 4, id="somebody else holds them"),
    ],
)
def test_no_node_is_to_be_reserved_when(change: dict[str, Any], taken: int) -> None:
    gpus = nodes("node-a", "node-b")
    steady = replace(a_namespace(quota=None, hard=None, used=None, steady=4), **change)

    assert FindingKind.STEADY_LOAD not in found(a_workload(*holds(gpus[:taken])), fleet=whole(steady, gpus=gpus))


def test_the_evidence_shows_the_days() -> None:
    item = found(fleet=whole(a_namespace()))[FindingKind.QUOTA_SLACK]

    assert item.evidence.active is not None
    assert (item.evidence.active.max, item.evidence.active.p50) == (8.0, 7.0)
    assert item.expires - item.at == 7 * DAY
