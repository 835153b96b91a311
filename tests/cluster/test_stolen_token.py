"""What a stolen token of each component can do: the table in docs/kubernetes.md, each attempt tried with such a one."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

import gpuwatch
from tests.cluster.api import EVENTS, MERGE, NODES, PODS, Answer
from tests.cluster.manifests import ACCOUNT
from tests.cluster.remediating import BUDGETS
from tests.cluster.story import OWN_PODS
from tests.cluster.tenant import OURS, Tenant
from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]  # quick: tests/deploy/test_privileges.py, test_own_node_policy

PAGE = Path(gpuwatch.__file__).parents[1] / "docs/kubernetes.md"
CLAIMED = {"metadata": {"annotations": {"gpuwatch.io/autotune": "enforce"}}}
UNAUTHENTICATED, FORBIDDEN = 401, 403


class Row(NamedTuple):
    """One row of the table: what is tried, and the answer, where it is a refusal."""

    attempt: str
    made: Callable[[Tenant], Answer]
    refused: int | None = None


def ends_with_its_pod(tenant: Tenant) -> Answer:
    """The last request of all: the API server caches a token that it has found good for some seconds."""
    tenant.api.request("DELETE", f"{OWN_PODS}/{tenant.account}?gracePeriodSeconds=0")
    until(lambda: tenant.asks("GET", f"{NODES}/{tenant.node}").status == UNAUTHENTICATED, "the token has ended")
    return tenant.asks("GET", f"{NODES}/{tenant.node}")


READS = (
    Row("read every Node", lambda t: t.asks("GET", f"{NODES}/{t.other}")),
    Row("read a Secret", lambda t: t.asks("GET", "/api/v1/namespaces/default/secrets/any"), FORBIDDEN),
    Row("read a ConfigMap", lambda t: t.asks("GET", "/api/v1/namespaces/default/configmaps/any"), FORBIDDEN),
)
LAST = Row("be used after its pod is gone", ends_with_its_pod, UNAUTHENTICATED)
TABLE: dict[str, tuple[tuple[str, ...], str, tuple[Row, ...]]] = {
    "`consents`": (
        ("consents",),
        "gpuwatch",
        (
            *READS,
            Row("list the pods of all Nodes", lambda t: t.asks("GET", "/api/v1/pods")),
            Row("read any Namespace", lambda t: t.asks("GET", "/api/v1/namespaces/default")),
            Row("opt a pod in to tuning", lambda t: t.asks("PATCH", f"{PODS}/{t.pod}", CLAIMED, MERGE), FORBIDDEN),
            Row("change its own Node", lambda t: t.taints(OURS), FORBIDDEN),
            LAST,
        ),
    ),
    "`remediator`, observe": (
        ("remediation",),
        ACCOUNT,
        (
            *READS,
            Row("list the slots of the budget", lambda t: t.asks("GET", BUDGETS)),
            Row("list pods", lambda t: t.asks("GET", PODS), FORBIDDEN),
            Row("change its own Node", lambda t: t.taints(OURS), FORBIDDEN),
            Row("take a slot of the budget", lambda t: t.creates_slot(t.node), FORBIDDEN),
            LAST,
        ),
    ),
    "`remediator`, enforce and drain": (
        ("remediation", "remediation-enforce", "remediation-drain"),
        ACCOUNT,
        (
            *READS,
            Row("list the pods of all Nodes", lambda t: t.asks("GET", "/api/v1/pods")),
            Row("quarantine its own Node", lambda t: t.taints(OURS)),
            Row(
                "cordon its own Node, and undo the cordon of others",
                lambda t: t.patch({"spec": {"unschedulable": True}}),
            ),
            Row("forge GPUHealthy and gpuwatch's labels on its own Node", lambda t: t.condition()),
            Row("quarantine or cordon another Node", lambda t: t.taints(OURS, node=t.other), FORBIDDEN),
            Row("take another controller's taint away", lambda t: t.patch({"spec": {"taints": [OURS]}}), FORBIDDEN),
            Row("change a label of others", lambda t: t.marks(labels={"example.com/a": None}), FORBIDDEN),
            Row("declare its own Node ready", lambda t: t.condition("Ready"), FORBIDDEN),
            Row("delete a Node", lambda t: t.asks("DELETE", f"{NODES}/{t.node}"), FORBIDDEN),
            Row("take a slot for another Node", lambda t: t.creates_slot(t.other), FORBIDDEN),
            Row("take the slot of a quarantined Node", lambda t: t.takes_slot_of_quarantined(), FORBIDDEN),
            Row("free the slot of another Node", lambda t: t.frees_slot_of(t.other), FORBIDDEN),
            Row("take one slot of the budget", lambda t: t.creates_slot(t.node, f"{t.slot}1")),
            Row("take a second one", lambda t: t.takes_second_slot(), FORBIDDEN),
            Row("create Events about pods, and about its own Node", lambda t: t.tells(t.node, t.node)),
            Row("create Events about another Node", lambda t: t.tells(t.other, t.node), FORBIDDEN),
            Row("evict a GPU pod of its own Node, as disruption budgets allow", lambda t: t.evicts()),
            Row("evict a GPU pod of another Node", lambda t: t.evicts(t.foreign_pod), FORBIDDEN),
            Row("evict a pod without a GPU", lambda t: t.evicts(t.pod_without_gpu), FORBIDDEN),
            Row("shorten the time that a pod has to end", lambda t: t.evicts(gracePeriodSeconds=0), FORBIDDEN),
            Row("delete a pod", lambda t: t.asks("DELETE", f"{PODS}/{t.pod}"), FORBIDDEN),
            LAST,
        ),
    ),
}
"""Whose token -> the components, the service account, the rows."""


@pytest.mark.slow  # policies of four accounts; test_own_node_policy holds each rule in make test
@pytest.mark.parametrize("holder", TABLE)
def test_each_row_is_so(fresh, install, holder):
    components, account, rows = TABLE[holder]
    install(*components)
    tenant = Tenant(fresh.api, account)
    try:
        answers = {row.attempt: _answer(tenant, row) for row in rows}
    finally:
        tenant.remove()
        for path in (BUDGETS, EVENTS):
            fresh.api.request("DELETE", path)
    assert {row.attempt: row.refused for row in rows} == {
        attempt: answer.status if answer.status >= 400 else None for attempt, answer in answers.items()
    }, answers


def _answer(tenant: Tenant, row: Row) -> Answer:
    """Policies are in force some time after they are installed; what they allow, they allow at once."""

    def attempt() -> Answer:
        tenant.api.request("DELETE", BUDGETS)
        return row.made(tenant)

    if row.refused:
        until(lambda: attempt().status >= 400, row.attempt)
    return attempt()


def test_the_page_shows_the_table():
    def attempts(rows: tuple[Row, ...], *, refused: bool) -> str:
        return "; ".join(row.attempt for row in rows if (row.refused is not None) == refused)

    shown = [
        f"| {holder} | {attempts(rows, refused=False)} | {attempts(rows, refused=True)} |"
        for holder, (_, _, rows) in TABLE.items()
    ]
    lines = PAGE.read_text().splitlines()
    assert [line for line in shown if line not in lines] == []
