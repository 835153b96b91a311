"""The committed admission policies keep a remediator to its own Node, and each of their rules is what does it.

Every attempt is made by a service account that all rules hold for. In `make test-slow` it is made a second time, by one
for which the one rule that should refuse it has been taken out: that takes a set of policies for each rule.
"""

from collections.abc import Callable
from typing import NamedTuple

import pytest

from gpuwatch.kube.objects import TAINT
from gpuwatch.remediation.service.node_writer import SHARD, SHARDS, slot_labels
from tests.cluster.api import EVENTS, MERGE, NODES, PODS, Answer, Api
from tests.cluster.conftest import PLANES
from tests.cluster.manifests import ACCOUNT, POLICY, apply, manifests, renamed, rules, with_variable, without
from tests.cluster.remediating import BUDGETS, OTHER, Objects, foreign, make_node, remove
from tests.cluster.story import GPU_CONTAINER, OWN_PODS, VICTIM, live, pod_on, policy, set_up, tear_down
from tests.cluster.tenant import OURS, Tenant, slot
from tests.remediation.model.remediating import NAMESPACE, NODE, Bench, FakeClock, fatal
from tests.waiting import until

pytestmark = pytest.mark.cluster


class Attempt(NamedTuple):
    """What must be refused, and the rule that refuses it."""

    name: str
    policy: str
    rule: str
    made: Callable[[Tenant], Answer]


CREATED_ELSEWHERE = {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "00000000"}

N, S, E, V, P = (f"gpuwatch-own-{each}" for each in ("node", "slot", "events", "evictions", "pods"))
SECOND, UNUSED = "gpuwatch-own-single-slot", "gpuwatch-own-unused-slot"
NOT_OWN = "the token is not of a pod on this Node"
NO_NODE = "the token is not of a pod on a node"
LABELS = "only labels of gpuwatch.io may be changed"
ANNOTATIONS = "only annotations of gpuwatch.io and the hand-over's may be changed"
OPT_OUT = "gpuwatch.io/opt-out is for people"
METADATA = "of the metadata only labels and annotations may be changed"
TAINTS = "only the taint gpuwatch.io/gpu-fault may be changed"
SPEC = "of the spec only taints and unschedulable may be changed"
CONDITIONS = "only the condition GPUHealthy may be changed"
STATUS = "of the status only conditions may be changed"
SLOTS = "only gpuwatch-slot-N may be changed"
TAKE = "a slot may be taken for the own node only"
FREE = "a slot of another node may not be released"
SLOT_LABEL = "a slot has the label app.kubernetes.io/managed-by=gpuwatch"
SLOT_SHARD = "a slot has the label gpuwatch.io/shard of its node"
TELLER = "the Event does not come from the token's node"

UNSHARDED = {key: value for key, value in slot_labels("").items() if key != SHARD}

HANDOVER = "handover", "['example.com/reboot']"
PLUGIN = "plugin", "'default/device-plugin'"


def elsewhere(node):
    """The labels of a slot of a node that is compared with others than this one's."""
    return {**slot_labels(node), SHARD: str((int(slot_labels(node)[SHARD]) + 1) % SHARDS)}


ATTEMPTS = (
    Attempt("taint another node", N, NOT_OWN, lambda t: t.taints(OURS, node=t.other)),
    Attempt("cordon another node", N, NOT_OWN, lambda t: t.patch({"spec": {"unschedulable": True}}, node=t.other)),
    Attempt("set the condition of another node", N, NOT_OWN, lambda t: t.condition(node=t.other)),
    Attempt("patch a node without being on one", N, NOT_OWN, lambda t: t.marks(labels={TAINT: "1"}, bound=False)),
    Attempt("add a foreign label", N, LABELS, lambda t: t.marks(labels={"example.com/new": "1"})),
    Attempt("change a foreign label", N, LABELS, lambda t: t.marks(labels={"example.com/a": "2"})),
    Attempt("remove a foreign label", N, LABELS, lambda t: t.marks(labels={"example.com/a": None})),
    Attempt("add an annotation", N, ANNOTATIONS, lambda t: t.marks(annotations={"example.com/new": "1"})),
    Attempt("change an annotation", N, ANNOTATIONS, lambda t: t.marks(annotations={"example.com/b": "1"})),
    Attempt("remove an annotation", N, ANNOTATIONS, lambda t: t.marks(annotations={"example.com/b": None})),
    Attempt("opt out by label", N, OPT_OUT, lambda t: t.marks(labels={"gpuwatch.io/opt-out": "true"})),
    Attempt("opt out by annotation", N, OPT_OUT, lambda t: t.marks(annotations={"gpuwatch.io/opt-out": "true"})),
    Attempt("have a node collected as garbage", N, METADATA, lambda t: t.marks(ownerReferences=[CREATED_ELSEWHERE])),
    Attempt("keep a node from being deleted", N, METADATA, lambda t: t.marks(finalizers=["example.com/stay"])),
    Attempt("add a foreign taint", N, TAINTS, lambda t: t.taints({**OTHER, "key": "a/b"})),
    Attempt("change a foreign taint", N, TAINTS, lambda t: t.patch({"spec": {"taints": [{**OTHER, "value": "y"}]}})),
    Attempt("remove a foreign taint", N, TAINTS, lambda t: t.patch({"spec": {"taints": [OURS]}})),
    Attempt("give a node a provider's id", N, SPEC, lambda t: t.patch({"spec": {"providerID": "kind://a"}})),
    Attempt("add a foreign condition", N, CONDITIONS, lambda t: t.condition("DiskPressure")),
    Attempt("change a foreign condition", N, CONDITIONS, lambda t: t.condition("Ready")),
    Attempt(
        "label a node by way of its status",
        N,
        LABELS,
        lambda t: t.patch({"metadata": {"labels": {"example.com/new": "1"}}}, status=True),
    ),
    Attempt("add resources", N, STATUS, lambda t: t.patch({"status": {"capacity": {"a.b/c": "1"}}}, status=True)),
    Attempt(
        "change the kubelet's port",
        N,
        STATUS,
        lambda t: t.patch({"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}, status=True),
    ),
    Attempt("make a slot without being on a node", S, NO_NODE, lambda t: t.creates_slot("", bound=False)),
    Attempt("make another Lease", S, SLOTS, lambda t: t.creates_slot(t.node, t.account)),
    Attempt("take a slot for another", S, TAKE, lambda t: t.creates_slot(t.other)),
    Attempt("free another's slot", S, FREE, lambda t: t.frees_slot_of(t.other)),
    Attempt(
        "take a slot that the policies do not find",
        S,
        SLOT_LABEL,
        lambda t: t.creates_slot(t.node, labels={SHARD: slot_labels(t.node)[SHARD]}),
    ),
    Attempt("take a slot that no policy compares", S, SLOT_SHARD, lambda t: t.creates_slot(t.node, labels=UNSHARDED)),
    Attempt("take a slot of another shard", S, SLOT_SHARD, lambda t: t.creates_slot(t.node, labels=elsewhere(t.node))),
    Attempt("take every slot", SECOND, "this node holds another slot", lambda t: t.takes_second_slot()),
    Attempt(
        "make room by a slot that is in use",
        UNUSED,
        "the slot is of a node that is quarantined",
        lambda t: t.takes_slot_of_quarantined(),
    ),
    Attempt("tell of another Node", E, "the Event is about another Node", lambda t: t.tells(t.other, t.node)),
    Attempt("tell in another's name", E, TELLER, lambda t: t.tells("", t.other)),
    Attempt("tell without being on a node", E, TELLER, lambda t: t.tells("", "", bound=False)),
    Attempt("evict without being on a node", P, "the pod runs on another Node", lambda t: t.evicts(bound=False)),
    Attempt("kill", V, "the time a pod has to end may not be changed", lambda t: t.evicts(gracePeriodSeconds=0)),
    Attempt("evict by name", V, "the eviction does not name the pod's uid", lambda t: t.evicts(preconditions=None)),
    Attempt(
        "evict what the policies do not find",
        V,
        "the eviction has not the label app.kubernetes.io/managed-by=gpuwatch",
        lambda t: t.evicts(labels={}),
    ),
    Attempt("evict a pod of another Node", P, "the pod runs on another Node", lambda t: t.evicts(t.foreign_pod)),
    Attempt("evict a pod without a GPU", P, "the pod asks for no GPU", lambda t: t.evicts(t.pod_without_gpu)),
)


@pytest.fixture(scope="module")
def api(control_plane):
    return Api(control_plane)


@pytest.fixture
def tenant(api):
    return PLANES.once(api, held_by_all_rules)


@pytest.fixture
def asks_for_more(api, tenant):
    return PLANES.once(api, with_options)


@pytest.fixture
def freed(api, tenant):
    return PLANES.once(api, each_free_of_a_rule)


def held_by_all_rules(api):
    """A tenant that all rules hold for."""
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    return installed(api, {ACCOUNT: manifests()})[ACCOUNT]


def with_options(api):
    """A tenant that may set the annotation of a hand-over and evict the pod of a device plugin."""
    asked = with_variable(with_variable(manifests(), *HANDOVER), *PLUGIN)
    return installed(api, {"with-options": renamed(asked, "with-options")})["with-options"]


def each_free_of_a_rule(api):
    """Tenants by the rule they are free of."""
    named = {rule: f"free-{number}" for number, rule in enumerate(rules(manifests()))}
    sets = {name: renamed(without(manifests(), *rule), name) for rule, name in named.items()}
    # The server learns of all policies, then of all bindings, in the order in which they were made: the last is whole.
    last = installed(api, {**sets, "free-of-none": renamed(manifests(), "free-of-none")})
    return {rule: last[name] for rule, name in named.items()}


def installed(api, sets):
    """A tenant for each account and the manifests that it has; returned when what the last one has is in force.

    The server learns of bindings in the order in which they were made. That of the Node's policy is made last, as an
    attempt on another Node changes nothing where the policy is not in force yet.
    """
    found = [each for made in sets.values() for each in reversed(made)]
    for each in sorted(found, key=lambda each: (each["kind"] == f"{POLICY}Binding", each["kind"] == POLICY)):
        apply(api, each)
    tenants = {account: Tenant(api, account) for account in sets}
    *_, last = tenants.values()
    until(lambda: NOT_OWN in last.patch({}, node=last.other).body.get("message", ""), "the last policy holds")
    return tenants


@pytest.fixture(autouse=True)
def nothing_left(api):
    """Nobody holds a slot, and nothing has been told, when a test is over."""
    yield
    for path in (BUDGETS, EVENTS):
        assert api.request("DELETE", path).status == 200


@pytest.fixture
def story(api, tenant):
    """Set up; gives the token of the remediator's pod on the story's node."""
    pod = set_up(api, ACCOUNT)
    yield api.server.service_account_token(NAMESPACE, ACCOUNT, pod)
    tear_down(api)


def bench_of(api, token):
    return Bench(Objects(api), api.server.token_kubeconfig(token), FakeClock(), policy())


def test_the_whole_story_is_allowed_on_the_own_node(api, story):
    before = foreign(api.request("GET", f"{NODES}/{NODE}").body)
    bench = bench_of(api, story)
    live(bench, api)
    assert bench.remediator.state.errors == {}
    assert {"claim", "slot", "taint", "condition", "event", "evict", "untaint", "free_slot"} <= set(bench.ledger.done())
    assert bench.is_clean()
    assert foreign(bench.node) == before
    assert api.request("GET", f"{PODS}/{VICTIM}").status == 404


def test_a_pod_of_another_node_can_do_nothing_here_and_says_why(api, story, tenant):
    bench = bench_of(api, tenant.token)
    bench.finds(fatal(bench.clock.time()))
    bench.run(30)
    assert not bench.ours
    assert NOT_OWN in bench.remediator.state.trouble
    assert bench.is_clean()


@pytest.mark.parametrize("node", ["ip-10-0-1-23.ec2.internal", "z-9.example.com", "0", f"{'n' * 63}.{'a1-' * 62}b"])
def test_policy_and_remediator_find_the_same_shard_for_every_name(api, tenant, node):
    make_node(api, node, f"boot-of-{node}")
    pod = pod_on(api, OWN_PODS, "shard", node, serviceAccountName=ACCOUNT)
    token = api.server.service_account_token(NAMESPACE, ACCOUNT, pod)
    try:
        assert api.request("POST", BUDGETS, slot(f"{tenant.slot}2", node), token=token).status == 201
    finally:
        for path in (f"{OWN_PODS}/shard?gracePeriodSeconds=0", f"{NODES}/{node}"):
            api.request("DELETE", path)


def test_what_is_ours_may_be_changed_on_the_own_node(tenant):
    for answer in (
        tenant.taints(OURS),
        tenant.patch({"spec": {"unschedulable": True}}),
        tenant.marks(labels={"gpuwatch.io/a": "1"}, annotations={"gpuwatch.io/b": "2"}),
        tenant.condition(),
        tenant.taints(),
        tenant.patch({"spec": {"unschedulable": None}}),
        tenant.marks(labels={"gpuwatch.io/a": None}, annotations={"gpuwatch.io/b": None}),
    ):
        assert answer.status == 200, answer


def test_a_node_full_of_entries_is_not_too_costly_to_compare(api, tenant):
    """A policy that runs out of its budget refuses everything."""
    many = {f"example.com/{number:03}": "x" * 60 for number in range(300)}
    marked = {"metadata": {"labels": many, "annotations": {**many, "example.com/big": "x" * 100_000}}}
    images = [{"names": [f"registry.example.com/{each}@sha256:{'0' * 64}"], "sizeBytes": each} for each in range(100)]
    volumes = [{"name": key, "devicePath": "/dev/x"} for key in many]
    for path, body in (("", marked), ("/status", {"status": {"images": images, "volumesAttached": volumes}})):
        assert api.request("PATCH", f"{NODES}/{tenant.node}{path}", body, MERGE).status == 200
    for answer in (tenant.taints(OURS), tenant.condition(), tenant.taints()):
        assert answer.status == 200, answer


def test_the_annotation_of_the_hand_over_may_be_named(asks_for_more):
    for value in ("requested", None):
        assert asks_for_more.marks(annotations={"example.com/reboot": value}).status == 200
    assert ANNOTATIONS in asks_for_more.marks(annotations={"example.com/reboots": "1"}).body["message"]


@pytest.mark.parametrize(
    ("kind", "name", "controller", "status"),
    [
        ("DaemonSet", "device-plugin", True, 201),
        ("DaemonSet", "device-plugin", False, 403),
        ("DaemonSet", "other", True, 403),
        ("ReplicaSet", "device-plugin", True, 403),
    ],
)
def test_the_device_plugin_may_be_named(api, tenant, asks_for_more, kind, name, controller, status):
    owner = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "none", "controller": controller}
    pod = pod_on(api, PODS, "of-a-plugin", asks_for_more.node)
    owned = {"metadata": {"ownerReferences": [owner]}}
    assert api.request("PATCH", f"{PODS}/of-a-plugin", owned, MERGE).status == 200, pod
    try:
        until(lambda: asks_for_more.evicts("of-a-plugin").status == status, f"the API server answers {status}")
        assert tenant.evicts("of-a-plugin").status == 403
    finally:
        remove(api, f"{PODS}/of-a-plugin")


def test_a_slot_may_be_taken_over_and_released(api, tenant):
    name = "gpuwatch-slot-1000000"
    assert api.request("POST", BUDGETS, slot(name, tenant.other)).status == 201
    for holder in (tenant.node, None):
        taken = {"spec": {"holderIdentity": holder}}
        status, body = tenant.asks("PATCH", f"{BUDGETS}/{name}", taken, MERGE)
        assert status == 200, body


def test_a_pod_of_the_own_node_that_uses_a_gpu_may_be_evicted(api, tenant):
    """By a limit of any of its containers, or by a claim (DRA)."""
    init = {"initContainers": [{**GPU_CONTAINER, "name": "init"}]}
    claim = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "none"}]}
    for name, spec in (("by-limit", {"containers": [GPU_CONTAINER]}), ("by-init", init), ("by-claim", claim)):
        pod_on(api, PODS, name, tenant.node, **spec)
        until(lambda name=name: tenant.evicts(name).status == 201, f"{name} may be evicted")
        remove(api, f"{PODS}/{name}")


@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_it_is_refused_by_its_rule(tenant, attempt):
    refused = attempt.made(tenant)
    assert refused.status == 403, refused
    assert f"denied request: {attempt.rule}" in refused.body["message"]


@pytest.mark.slow  # 700 objects; that a rule refuses at all is held by test_it_is_refused_by_its_rule
@pytest.mark.parametrize("attempt", ATTEMPTS, ids=lambda attempt: attempt.name)
def test_it_is_refused_by_one_rule_alone(freed, attempt):
    allowed = attempt.made(freed[attempt.policy, attempt.rule])
    assert allowed.status < 300, allowed


def test_every_rule_has_its_attempt():
    assert {(attempt.policy, attempt.rule) for attempt in ATTEMPTS} == set(rules(manifests()))


@pytest.mark.parametrize("verb", ["DELETE", "PUT"])
def test_nothing_is_deleted_or_replaced(tenant, verb):
    for path in (f"{NODES}/{tenant.node}", f"{PODS}/{tenant.pod}", f"{BUDGETS}/{tenant.slot}"):
        status, body = tenant.asks(verb, path, {} if verb == "PUT" else None)
        assert (status, body["reason"]) == (403, "Forbidden"), path
        assert "cannot" in body["message"]


def test_others_are_left_alone(api, tenant):
    path = f"{NODES}/{tenant.other}"
    assert api.request("PATCH", path, {"metadata": {"labels": {"example.com/mine": "1"}}}, MERGE).status == 200
