"""The committed RBAC rules are what the remediator needs: a story that needs all of them, and each of them missing."""

import pytest
from msgspec.structs import replace

from gpuwatch.sim.kubeapi.access import AccessRule
from tests.cluster.api import PODS, Api
from tests.cluster.manifests import ACCOUNT, DRAIN, ENFORCE, OBSERVE, Right, manifests, rights
from tests.cluster.remediating import Objects
from tests.cluster.simulated import Simulated
from tests.cluster.story import VICTIM, live, policy, set_up
from tests.remediation.model.remediating import Bench, FakeClock, fatal

GRANTED = sorted(rights(manifests()))
WRITES = {"create", "update", "patch", "delete"}


@pytest.fixture
def server(tmp_path):
    with Simulated(tmp_path) as running:
        yield running


def begun(server, granted, config=None):
    """A sick node before an API server, with a remediator that has these rights, and the way to look at it."""
    rules = [
        AccessRule(
            verbs=[each.verb], resources=[each.resource], groups=[each.group], namespaces=[each.namespace or "*"]
        )
        for each in granted
    ]
    server.cluster.add_user(ACCOUNT, rules)
    api = Api(server)
    set_up(api, ACCOUNT)
    return Bench(Objects(api), server.kubeconfig(ACCOUNT), FakeClock(), config or policy()), api


def asked(server):
    return {(verb, resource) for user, verb, resource in server.cluster.requests if user == ACCOUNT}


def test_exactly_these_rights_are_needed(server):
    bench, api = begun(server, GRANTED)
    live(bench, api)
    assert bench.remediator.state.errors == {}
    assert {"taint", "evict", "untaint", "free_slot"} <= set(bench.ledger.done())
    assert bench.is_clean()
    assert api.request("GET", f"{PODS}/{VICTIM}").status == 404
    assert asked(server) == {(each.verb, each.resource) for each in GRANTED}


@pytest.mark.parametrize("missing", GRANTED, ids=lambda right: f"{right.verb} {right.resource} {right.namespace}")
def test_a_missing_right_is_reported(server, missing: Right, caplog):
    bench, api = begun(server, [each for each in GRANTED if each != missing])
    live(bench, api)
    assert bench.remediator.state.errors["Forbidden"] >= 1
    said = [*caplog.messages, *(each.detail for each in bench.ledger.actions)]
    assert any(f"cannot {missing.verb} {missing.resource}" in words for words in said)


def test_who_observes_needs_no_right_to_write(server):
    observing = {each for each in rights(manifests(OBSERVE, DRAIN)) if each.resource != "pods/eviction"}
    assert not WRITES & {each.verb for each in observing}
    bench, api = begun(server, observing, replace(policy(), mode="observe"))
    live(bench, api)
    assert bench.remediator.state.errors == {}
    assert bench.remediator.state.actions
    assert asked(server) <= {(each.verb, each.resource) for each in observing}


def test_who_does_not_drain_needs_no_right_to_evict(server):
    granted = rights(manifests(OBSERVE, ENFORCE))
    assert ("create", "pods/eviction") not in {(each.verb, each.resource) for each in granted}
    bench, _ = begun(server, granted, replace(policy(), checks={}))
    bench.finds(fatal(bench.clock.time()))
    bench.run(100)
    assert bench.is_quarantined()
    bench.finds()
    bench.run(200)
    assert bench.remediator.state.errors == {}
    assert bench.is_clean()
