"""Many nodes that fall sick in one instant get exactly the slots that there are, on a real API server."""

import pytest

from tests.cluster.burst import burst
from tests.cluster.conftest import binaries
from tests.cluster.controlplane import ControlPlane


@pytest.mark.cluster
@pytest.mark.slow  # quick: test_of_many_nodes_that_need_the_last_slots_as_many_get_one_as_there_are of test_executor.py
@pytest.mark.parametrize("budget", [10, "10%"])
def test_a_burst_of_faults_uses_the_budget_and_no_more(tmp_path, budget):
    with ControlPlane(tmp_path, binaries()) as plane:
        result = burst(plane, nodes=100, budget=budget)
    print(result.table())
    assert result.broken == ()
    assert (len(result.taints), result.most, result.claims_left) == (10, 10, 0)
