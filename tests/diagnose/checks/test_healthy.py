"""A host that is well passes: nothing is wrong, and what is skipped says why."""

import pytest

from gpuwatch.diagnose.model import CheckStatus
from tests.diagnose.hosts import Host

NODES = {
    "h100": {},
    "a100": {"model": "a100"},
    "l40s": {"model": "l40s", "gpus": 4},
    "t4": {"model": "t4", "gpus": 2},
    "b200": {"model": "b200"},
    "rtx4080s": {"model": "rtx4080s", "gpus": 1},
    "mig": {"mig": {"0": ["3g.40gb", "3g.40gb"]}},
    "time-sliced": {"model": "l40s", "gpus": 2, "replicas": 4},
    "outside a cluster": {"model": "a100", "timeline": ({"at": 0, "do": "kubelet", "state": "absent"},)},
}


@pytest.mark.parametrize("name", NODES)
def test_a_healthy_host(tmp_path, name):
    diagnosis = Host(tmp_path, **NODES[name]).diagnose()
    assert [(r.id, r.message) for r in diagnosis.results if r.result in (CheckStatus.WARN, CheckStatus.FAIL)] == []
    skipped = [r.message for r in diagnosis.results if r.result is CheckStatus.SKIP]
    assert all(skipped)
    assert not [message for message in skipped if "the check itself failed" in message]
    assert all(r.blocked_by is None for r in diagnosis.results)
