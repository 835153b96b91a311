"""What an installation may do: the rights each service account ends up with, and what the installed policies refuse."""

import pytest

from tests.cli.processes import finish
from tests.cluster.api import NODES
from tests.cluster.manifests import ACCOUNT
from tests.cluster.remediating import BUDGETS
from tests.cluster.rights import asked, listed, table
from tests.cluster.tenant import OURS, Tenant, slot
from tests.deploy.rendering import COMPONENTS, built
from tests.remediation.model.remediating import NAMESPACE
from tests.waiting import until

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
]  # quick: tests/deploy/test_privileges.py reads the same rights from the manifests

OBSERVE = {
    ("", "nodes", "get"),
    ("", "nodes", "list"),
    (NAMESPACE, "leases.coordination.k8s.io", "list"),
}
ENFORCE = OBSERVE | {
    ("", "nodes", "patch"),
    ("", "nodes/status", "patch"),
    ("", "events", "create"),
    (NAMESPACE, "leases.coordination.k8s.io", "get"),
    (NAMESPACE, "leases.coordination.k8s.io", "create"),
    (NAMESPACE, "leases.coordination.k8s.io", "patch"),
    (NAMESPACE, "pods", "get"),
}
DRA = "resource.k8s.io"
DRAIN = ENFORCE | {("", "pods", "list"), ("", "pods/eviction", "create")}
CONSENTS = {("", "nodes", "get"), ("", "namespaces", "get"), ("", "pods", "list")}
DEVICES = {("", f"devicetaintrules.{DRA}", verb) for verb in ("get", "list", "create", "delete")}
DEVICES |= {("", f"resourceslices.{DRA}", "list")}
EVERYTHING = DRAIN | CONSENTS | DEVICES
RIGHTS = {
    (): {},
    ("tuner",): {},
    ("consents",): {"gpuwatch": CONSENTS},
    ("tuner", "consents", "tuner-enforce"): {"gpuwatch": CONSENTS},
    ("remediation",): {ACCOUNT: OBSERVE},
    ("remediation", "consents"): {ACCOUNT: OBSERVE | CONSENTS},
    ("remediation", "remediation-enforce"): {ACCOUNT: ENFORCE},
    ("remediation", "remediation-enforce", "remediation-drain"): {ACCOUNT: DRAIN},
    ("remediation", "remediation-enforce", "remediation-devices"): {ACCOUNT: ENFORCE | DEVICES},
    COMPONENTS: {ACCOUNT: EVERYTHING},
}
"""Components -> what the pod's account may do. The agent's own may do nothing, unless it is the pod's."""

ALLOWED = ("get nodes", "patch nodes --subresource=status", "create pods --subresource=eviction")
REFUSED = ("update nodes", "delete nodes", "get secrets", "create pods", "delete pods", "impersonate users")
NOT_OWN = "the token is not of a pod on this Node"


QUICK = ((), ("remediation", "remediation-enforce"), COMPONENTS)
"""The least, the most, and what many have; the others only in `make test-slow`."""


@pytest.mark.parametrize(
    "chosen",
    [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow) for each in RIGHTS],
    ids=lambda chosen: "+".join(chosen) or "base",
)
def test_a_service_account_may_do_this_and_nothing_else(fresh, install, chosen):
    accounts = [each["metadata"]["name"] for each in built(install(*chosen)) if each["kind"] == "ServiceAccount"]
    tokens = {account: fresh.plane.service_account_token(NAMESPACE, account) for account in accounts}
    found = {account: listed(fresh.api, token) for account, token in tokens.items()}
    print(table(found))
    assert found == {"gpuwatch": set(), **RIGHTS[chosen]}


@pytest.mark.slow  # 1,500 questions; what the server lists is held by the test above
def test_no_other_verb_on_anything_is_allowed(fresh, install):
    """Asked about each, as not every right has to be in the list that an account gets of its own."""
    install(*COMPONENTS)
    account = f"system:serviceaccount:{NAMESPACE}:{ACCOUNT}"
    assert asked(fresh.api, account) == EVERYTHING
    for verbs, said in ((ALLOWED, "yes"), (REFUSED, "no")):
        for words in verbs:
            done = fresh.kubectl.run("auth", "can-i", *words.split(), f"--as={account}", f"--namespace={NAMESPACE}")
            assert done.stdout.split()[-1] == said, (words, done.stderr)


@pytest.fixture
def enforcing(fresh, install):
    """The remediator's account as installed, once the policies are in force."""
    install(*COMPONENTS)
    tenant = Tenant(fresh.api, ACCOUNT)
    until(lambda: NOT_OWN in tenant.patch({}, node=tenant.other).body.get("message", ""), "the Node's policy holds")
    of_another = slot(tenant.slot, tenant.other)
    until(lambda: tenant.asks("POST", f"{BUDGETS}?dryRun=All", of_another).status == 403, "the slots' policy holds")
    yield tenant
    tenant.remove()


def test_the_installed_policy_lets_the_own_node_change_and_nothing_else(enforcing):
    attempts = {
        "own node": (enforcing.taints(OURS), None),
        "own condition": (enforcing.condition(), None),
        "other node": (enforcing.taints(OURS, node=enforcing.other), NOT_OWN),
        "foreign taint": (enforcing.taints({**OURS, "key": "example.com/a"}), "only the taint gpuwatch.io/gpu-fault"),
        "foreign label": (enforcing.marks(labels={"example.com/mine": "1"}), "only labels of gpuwatch.io"),
        "no claim": (enforcing.patch({"metadata": {"labels": {"gpuwatch.io/a": "1"}}}, bound=False), NOT_OWN),
        "slot for another": (enforcing.creates_slot(enforcing.other), "for the own node only"),
        "delete": (enforcing.asks("DELETE", f"{NODES}/{enforcing.node}"), "cannot delete resource"),
    }
    for name, (answer, rule) in attempts.items():
        assert answer.status == (403 if rule else 200), (name, answer)
        assert (rule or "") in answer.body.get("message", ""), name


@pytest.mark.slow  # test_remediation_cluster.py releases on both API servers, tests/remediation with the command
def test_before_an_uninstall_the_remediator_releases_what_is_its_own(fresh, tmp_path, enforcing):
    def keys():
        node = fresh.api.request("GET", f"{NODES}/{enforcing.node}").body
        metadata = node["metadata"]
        return {*metadata["annotations"], *metadata["labels"], *(taint["key"] for taint in node["spec"]["taints"])}

    def ours():
        return {key for key in keys() if key.startswith("gpuwatch.io/")}

    told = ("--node", enforcing.node, "--kubeconfig", str(fresh.plane.kubeconfig()))
    quarantined = finish("node", "quarantine", *told, "--reason", "uninstall", "--yes", "--ignore-budget")
    assert quarantined.returncode == 0, quarantined.stderr
    assert OURS["key"] in ours()
    token = ("--node-name", enforcing.node, "--kubeconfig", str(fresh.plane.token_kubeconfig(enforcing.token)))
    released = finish("remediator", "--release", *token, "--state-dir", str(tmp_path / "state"))
    assert released.returncode == 0, released.stderr
    assert ours() == set()
