"""Chaos: the same seed is the same plan; a minute of it breaks no invariant (`make chaos` runs ten)."""

from pathlib import Path

import pytest

from tests.chaos.__main__ import run
from tests.chaos.plan import DAEMONS, KINDS, plan
from tests.cluster.binaries import find
from tests.cluster.conftest import without
from tests.cluster.controlplane import ControlPlane


def test_the_same_seed_is_the_same_plan_and_ten_minutes_hold_every_kind_of_failure() -> None:
    actions = plan(3, 600)
    assert actions == plan(3, 600) != plan(4, 600)
    assert {action.kind for action in actions} == set(KINDS)
    assert {action.target for action in actions if action.kind == "kill"} == set(DAEMONS)
    assert all(action.at >= 0 and action.at + action.seconds <= 600 for action in actions)


@pytest.mark.cluster
@pytest.mark.slow
def test_a_minute_of_chaos_breaks_no_invariant(tmp_path: Path) -> None:
    binaries = find() or without("kube-apiserver and etcd are not built; run: make test-cluster")
    with ControlPlane(tmp_path / "plane", binaries) as plane:
        (tmp_path / "node").mkdir()
        assert run(2, 60.0, tmp_path / "node", plane) == []
