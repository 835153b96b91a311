"""Healthy nodes of other kinds than the simulated one have nothing wrong either."""

import pytest

from gpuwatch.diagnose.model import CheckStatus
from tests.diagnose.host.kinds import KINDS
from tests.diagnose.hosts import Host
from tests.seeds import a_third


@pytest.mark.parametrize("kind", a_third(KINDS), ids=lambda kind: kind.name)
def test_a_healthy_node_of_another_kind(tmp_path, kind):
    host = Host(tmp_path, **kind.node)
    kind.becomes(host)
    diagnosis = host.diagnose()
    assert [(r.id, r.message) for r in diagnosis.results if r.result in (CheckStatus.WARN, CheckStatus.FAIL)] == []
    assert not [r.message for r in diagnosis.results if "the check itself failed" in r.message]
