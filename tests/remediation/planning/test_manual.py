"""What a person asks for by hand takes what is free, gives back what is ours, and touches nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.cli.node.items import after
from gpuwatch.kube.objects import CONDITION, TAINT, Condition, LeaseObject, NodeObject, Taint
from gpuwatch.model.finding import Response
from gpuwatch.remediation.model import (
    ACKNOWLEDGED,
    FAULTS,
    OWNER,
    QUARANTINED,
    BlockReason,
    CreateEvent,
    DeleteRule,
    Fault,
    FreeSlot,
    PatchNode,
    SetCondition,
    TakeSlot,
)
from gpuwatch.remediation.planning.manual_quarantine import QuarantineRequest, quarantine, release, withdraw
from gpuwatch.remediation.planning.ownership import ClaimState, acknowledged, encode, read_claim

AT = 1_790_000_000.0
OTHERS = (Taint(key="team", value="a"), Taint(key="node.kubernetes.io/not-ready", effect="NoExecute"))
READY = Condition(type="Ready", status="True")
NODE = NodeObject(
    name="gpu-1",
    uid="uid-1",
    resource_version="7",
    taints=OTHERS,
    labels={"zone": "b"},
    annotations={"team": "a"},
    conditions=(READY,),
)
SLOT = TakeSlot(slots=3, name="gpuwatch-slot-1")
REQUEST = QuarantineRequest(at=AT, reason="fan replaced tomorrow", cordon=True)
LEASE = LeaseObject(name="gpuwatch-slot-1", holder="gpu-1")
FAULT = Fault(key="xid_fatal/GPU-1/79", check="xid_fatal", response=Response.TAINT, gpu="GPU-1", xid=79, last=AT - 9)


def taken(node=NODE, request=REQUEST, slot=SLOT):
    return after(node, quarantine(node, request, slot).steps)


def test_the_claim_comes_before_the_slot_and_the_slot_before_the_taint():
    steps = quarantine(NODE, REQUEST, SLOT).steps
    assert [type(step) for step in steps] == [PatchNode, TakeSlot, PatchNode, SetCondition, CreateEvent]
    assert read_claim(after(NODE, steps[:1])).claim is ClaimState.CLAIMED
    assert read_claim(after(NODE, steps[:3])).claim is ClaimState.APPLIED


def test_it_says_who_and_why_and_holds_until_a_person_releases():
    owner = read_claim(taken()).owner
    assert (owner.by, owner.held, owner.slot, owner.cordoned) == ("operator", REQUEST.reason, SLOT.name, True)
    assert taken().condition.status == "False"
    assert REQUEST.reason in taken().condition.message


@pytest.mark.parametrize("cordoned_before", [True, False])
def test_everything_comes_back_as_it_was(cordoned_before):
    node = replace(NODE, unschedulable=cordoned_before)
    held = taken(node)
    assert held.unschedulable
    plan = release(held, REQUEST, (LEASE,))
    assert after(held, plan.steps) == node
    assert FreeSlot(name=LEASE.name) in plan.steps


def test_a_label_that_was_there_before_stays():
    node = replace(NODE, labels={QUARANTINED: "by somebody"})
    assert after(taken(node), release(taken(node), REQUEST, ()).steps).labels == node.labels


def test_what_others_did_meanwhile_stays():
    held = taken()
    changed = replace(held, taints=(*held.taints, Taint(key="late")), labels={**held.labels, "late": "1"})
    back = after(changed, release(changed, REQUEST, ()).steps)
    assert back.taints == (*OTHERS, Taint(key="late"))
    assert back.labels == {"zone": "b", "late": "1"}


@pytest.mark.parametrize(
    "annotation", [None, "not json", encode(read_claim(taken(replace(NODE, uid="another"))).owner)]
)
def test_a_taint_that_nothing_proves_to_be_ours_is_left_alone_and_reported(annotation):
    mark = {} if annotation is None else {OWNER: annotation}
    node = replace(NODE, taints=(*OTHERS, Taint(key=TAINT, value="x")), annotations=mark)
    for plan in (quarantine(node, REQUEST, SLOT), release(node, REQUEST, ())):
        assert after(node, plan.steps).taints == node.taints
        assert [one.reason for one in plan.blocked] == [BlockReason.FOREIGN]
        assert f"kubectl taint node gpu-1 {TAINT}" in plan.blocked[0].message


def test_leftovers_go():
    owner = read_claim(taken()).owner
    node = replace(NODE, annotations={OWNER: encode(owner), FAULTS: "garbled"}, conditions=(READY, taken().condition))
    back = after(node, release(node, REQUEST, (), forget=True).steps)
    assert back.annotations == {}
    assert back.conditions == (READY,)


def test_a_node_without_anything_of_ours_is_not_written_to():
    assert release(NODE, REQUEST, ()).steps == ()


def test_what_was_wrong_is_overruled_until_it_happens_again():
    held = replace(taken(), annotations={**taken().annotations, FAULTS: encode((FAULT,))})
    newer = replace(FAULT, last=AT)
    assert acknowledged(after(held, release(held, REQUEST, ()).steps)) == {FAULT.key: FAULT.last}
    assert acknowledged(after(held, release(held, REQUEST, (), (newer,)).steps)) == {FAULT.key: AT}
    assert ACKNOWLEDGED not in after(held, release(held, REQUEST, (), (newer,), forget=True).steps).annotations


def test_a_quarantine_of_the_remediators_becomes_a_persons():
    steps = quarantine(NODE, QuarantineRequest(at=AT, reason="first"), SLOT).steps
    automatic = after(NODE, steps)
    owner = replace(read_claim(automatic).owner, by="remediator", held=None)
    automatic = replace(automatic, annotations={**automatic.annotations, OWNER: encode(owner)})
    plan = quarantine(automatic, REQUEST, None)
    assert [step.step for step in plan.steps] == ["refresh"]
    kept = read_claim(after(automatic, plan.steps)).owner
    assert (kept.by, kept.held, kept.id, kept.slot) == ("operator", REQUEST.reason, owner.id, owner.slot)
    assert kept.cordoned


TAINTS = st.builds(Taint, key=st.sampled_from(["a", "b", "c"]), value=st.sampled_from(["", "x"]))


@given(
    taints=st.lists(TAINTS, max_size=4).map(tuple),
    labels=st.dictionaries(st.sampled_from(["a", "b", QUARANTINED]), st.just("1")),
    cordoned=st.booleans(),
    manual=st.builds(
        QuarantineRequest, at=st.just(AT), reason=st.text(max_size=300), cordon=st.booleans(), drain=st.booleans()
    ),
)
def test_whatever_the_node_was_like_it_is_so_again(taints, labels, cordoned, manual):
    node = replace(NODE, taints=taints, labels=labels, unschedulable=cordoned)
    held = taken(node, manual)
    assert held.taint is not None
    assert next(c for c in held.conditions if c.type == CONDITION).status == "False"
    assert after(held, release(held, manual, ()).steps) == node


def test_only_what_a_person_began_and_could_not_end_is_withdrawn():
    begun = after(NODE, quarantine(NODE, REQUEST, SLOT).steps[:1])
    forget, free = withdraw(begun, AT, [LEASE]).steps
    assert after(begun, [forget]).annotations == NODE.annotations
    assert free == FreeSlot(name=LEASE.name)
    owner = replace(read_claim(begun).owner, by="remediator")
    remediators = replace(begun, annotations={**begun.annotations, OWNER: encode(owner)})
    for node in (NODE, taken(), remediators):
        assert withdraw(node, AT, [LEASE]).steps == ()


def test_rules_of_a_quarantine_go_with_it():
    node = taken()
    owner = replace(read_claim(node).owner, rules=("gpuwatch-a", "gpuwatch-b"))
    steps = release(replace(node, annotations={**node.annotations, OWNER: encode(owner)}), REQUEST, []).steps
    assert [(each.name, each.owner) for each in steps if isinstance(each, DeleteRule)] == [
        ("gpuwatch-a", owner.id), ("gpuwatch-b", owner.id)
    ]  # fmt: skip
