"""Why a job that may be on other nodes is refused: the bounds of nodes do not add up to one for the job."""

import pytest

from tests.bench.tuner.nodes import BOUND, slowdown


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_on_one_node_the_bound_is_the_jobs(share):
    assert slowdown(1, share, 4, 1) <= BOUND + 1e-9


@pytest.mark.parametrize("nodes", [2, 64])
def test_on_several_nodes_each_one_hides_behind_the_others(nodes):
    assert slowdown(nodes, 0.5, 4, 1) > 3 * BOUND
