"""Whose work is on which GPUs, which of them are moved together, and when it is other work than before."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.model.consent import Consents, PodConsent
from gpuwatch.model.snapshot import GpuProcess
from gpuwatch.model.view import View
from gpuwatch.model.workload import ProcessOwner, Workload
from gpuwatch.tuning.gates.owners import Gang, Owner, consent_of, follow, gangs, owners
from tests.remediation.planning.remediating import START, view

ALICE = ProcessOwner(pid=7, start_time=1, uid=1000, user="alice")
GPUS = tuple(f"GPU-{index}" for index in range(4))


def pod(name: str, uid: str | None = None, container: str = "main") -> Workload:
    return Workload(namespace="ml", pod=name, container=container, pod_uid=uid)


def held(holders: dict[str, tuple[Workload, ...]], lost: Iterable[str] = ()) -> View:
    """Four GPUs; `lost` ones have a status and no sample."""
    made = view(gpus=GPUS, holders=holders)
    there = tuple(gpu for gpu in made.snapshot.gpus if gpu.identity.uuid not in lost)
    return replace(made, snapshot=replace(made.snapshot, gpus=there))


def running(of: View, processes: dict[str, tuple[int, ...]], *known: ProcessOwner) -> View:
    gpus = tuple(
        replace(gpu, processes=tuple(GpuProcess(pid=pid, type="compute") for pid in processes.get(uuid, ())))
        for gpu in of.snapshot.gpus
        if (uuid := gpu.identity.uuid)
    )
    return replace(of, owners=known, snapshot=replace(of.snapshot, gpus=gpus))


def consents(*pods: PodConsent) -> Consents:
    return Consents(at=START, pods=pods)


def rank(name: str, uid: str, job: str | None = None) -> PodConsent:
    return PodConsent(namespace="ml", name=name, uid=uid, job=job)


def grouped(of: View, known: Consents | None = None) -> list[tuple[str, ...]]:
    return [gang.uuids for gang in gangs(of, known)]


def test_gpus_of_nobody_are_each_on_their_own() -> None:
    assert grouped(held({})) == [(uuid,) for uuid in GPUS]
    assert all(not gang.owners for gang in gangs(held({}), None))


def test_gpus_of_one_pod_are_one_team() -> None:
    of = held({"GPU-0": (pod("a", "uid-a"),), "GPU-2": (pod("a", "uid-a"),), "GPU-3": (pod("b", "uid-b"),)})
    assert grouped(of) == [("GPU-0", "GPU-2"), ("GPU-1",), ("GPU-3",)]


def test_a_lost_gpu_stays_with_the_pod_that_had_it() -> None:
    of = held({"GPU-0": (pod("a", "uid-a"),), "GPU-1": (pod("a", "uid-a"),)}, lost=["GPU-1"])
    assert grouped(of)[0] == ("GPU-0", "GPU-1")


def test_pods_of_one_job_are_one_team_and_their_namesakes_elsewhere_are_not() -> None:
    of = held({"GPU-0": (pod("a", "uid-a"),), "GPU-1": (pod("b", "uid-b"),), "GPU-2": (pod("c", "uid-c"),)})
    known = consents(
        rank("a", "uid-a", "train"), rank("b", "uid-b", "train"), replace(rank("c", "uid-c", "train"), namespace="web")
    )
    assert grouped(of, known) == [("GPU-0", "GPU-1"), ("GPU-2",), ("GPU-3",)]
    assert grouped(of) == [(uuid,) for uuid in GPUS]


def test_teams_hang_together_by_chains() -> None:
    a, b, c = pod("a", "uid-a"), pod("b", "uid-b"), pod("c", "uid-c")
    of = held({"GPU-0": (a,), "GPU-3": (a, b), "GPU-1": (c,), "GPU-2": (b, c)})
    (gang,) = gangs(of, None)
    assert gang.uuids == GPUS
    assert [owner.name for owner in gang.owners] == ["ml/a", "ml/c", "ml/b"]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (ALICE, "user alice"),
        (replace(ALICE, slurm_job="42"), "slurm 42"),
        (replace(ALICE, user=None), "user 1000"),
        (replace(ALICE, user=None, uid=None), "a process"),
    ],
)
def test_outside_of_pods_it_is_the_job_or_the_account(owner: ProcessOwner, name: str) -> None:
    of = running(held({}), {"GPU-0": (7,), "GPU-1": (8,)}, owner, replace(owner, pid=8))
    first = gangs(of, None)[0]
    assert first == Gang(uuids=("GPU-0", "GPU-1"), owners=(Owner(name=name),), pids=frozenset({7, 8}))
    assert not first.owners[0].is_pod


def test_processes_of_unknown_owners_may_belong_together() -> None:
    of = running(held({}), {"GPU-0": (7,), "GPU-1": (8,)})
    assert grouped(of)[0] == ("GPU-0", "GPU-1")


def test_a_pods_own_processes_are_no_other_owner() -> None:
    inside = replace(ALICE, pod_uid="uid-a", workload=pod("a", "uid-a"))
    of = running(held({"GPU-0": (pod("a", "uid-a"),)}), {"GPU-0": (7, 8)}, inside)
    (first, *_) = gangs(of, None)
    assert [owner.name for owner in first.owners] == ["ml/a"]
    assert first.pids == {7, 8}


def test_a_pod_keeps_its_key_when_its_uid_becomes_known_by_a_process() -> None:
    known = consents(rank("a", "uid-a"))
    before = gangs(held({"GPU-0": (pod("a"),)}), known)[0]
    after = gangs(held({"GPU-0": (pod("a", "uid-a"),)}), known)[0]
    assert before.key == after.key
    assert before.owners == (Owner(name="ml/a", uid="uid-a", namespace="ml", pod="a"),)


def test_a_pod_of_which_only_the_uid_is_known_gets_its_name() -> None:
    of = held({"GPU-0": (Workload(pod_uid="uid-a"),)})
    assert owners(of, "GPU-0", None)[0].name == "pod uid-a"
    assert owners(of, "GPU-0", None, consents(rank("a", "uid-a")))[0].name == "ml/a"


def test_a_pod_that_only_the_kubelet_knows_is_one_by_its_name() -> None:
    (found,) = owners(held({"GPU-0": (pod("a"),)}), "GPU-0", None)
    assert (found.id, found.is_pod) == ("ml/a", True)
    assert Owner(name="pod uid-a", uid="uid-a").is_pod


def test_containers_of_a_pod_are_one_owner_also_when_one_has_not_begun() -> None:
    of = held({"GPU-0": (pod("a", "uid-a"), pod("a", None, "sidecar"), pod("a", "uid-a", "logger"))})
    assert owners(of, "GPU-0", None) == (Owner(name="ml/a", uid="uid-a", namespace="ml", pod="a"),)


def test_a_pod_made_again_under_its_name_is_another_one() -> None:
    one, two = (gangs(held({"GPU-0": (pod("a", uid),)}), None)[0] for uid in ("uid-1", "uid-2"))
    assert one.owners[0].name == two.owners[0].name
    assert one.key != two.key
    assert follow(one, two) == (two, True)
    assert consent_of(two.owners[0], consents(rank("a", "uid-1"))) is None


def gang(*pids: int, gpus: tuple[str, ...] = ("GPU-0",), owner: str = "ml/a") -> Gang:
    return Gang(uuids=gpus, owners=(Owner(name=owner),), pids=frozenset(pids))


def test_the_first_team_is_no_other_than_before() -> None:
    assert follow(None, gang(1)) == (gang(1), False)


@pytest.mark.parametrize("now", [gang(1, gpus=("GPU-0", "GPU-1")), gang(1, owner="ml/b"), gang(gpus=())])
def test_s7_other_gpus_or_other_owners_are_other_work(now: Gang) -> None:
    assert follow(gang(1), now) == (now, True)


def test_s7_processes_of_which_none_was_there_before_are_other_work() -> None:
    assert follow(gang(1, 2), gang(3, 4)) == (gang(3, 4), True)


def test_a_process_more_or_less_is_the_same_work() -> None:
    assert follow(gang(1, 2), gang(2, 3)) == (gang(1, 2), False)
    assert follow(gang(), gang(1)) == (gang(1), False)


def test_s7_ranks_that_are_replaced_one_after_the_other_are_other_work_in_the_end() -> None:
    between, is_other = follow(gang(1, 2), gang(2, 3))
    assert not is_other
    assert follow(between, gang(3, 4)) == (gang(3, 4), True)


def test_s7_a_script_started_again_is_other_work_also_after_a_pause() -> None:
    waiting, is_other = follow(gang(1), gang())
    assert (waiting.pids, is_other) == ({1}, False)
    assert follow(waiting, gang(1)) == (gang(1), False)
    assert follow(waiting, gang(2)) == (gang(2), True)


def test_a_key_does_not_depend_on_the_order() -> None:
    a, b = Owner(name="a"), Owner(name="b")
    assert Gang(uuids=("1", "2"), owners=(a, b)).key == Gang(uuids=("2", "1"), owners=(b, a)).key
    assert Gang(uuids=("1",), owners=(a,)).key != Gang(uuids=("1",), owners=(a, b)).key


HOLDERS = st.dictionaries(
    st.sampled_from(GPUS),
    st.lists(st.sampled_from([pod(name, uid) for name, uid in (("a", "1"), ("b", "2"), ("c", None))]), max_size=3).map(
        tuple
    ),
)


@given(HOLDERS, st.sets(st.sampled_from(GPUS)))
def test_every_gpu_is_in_one_team_and_owners_in_one_too(
    holders: dict[str, tuple[Workload, ...]], lost: set[str]
) -> None:
    found = gangs(held(holders, lost), None)
    assert sorted(uuid for each in found for uuid in each.uuids) == sorted(GPUS)
    names = [owner.id for each in found for owner in each.owners]
    assert len(names) == len(set(names))
    for each in found:
        assert set(each.owners) == {owner for uuid in each.uuids for owner in owners(held(holders), uuid, None)}
        assert each.owners or len(each.uuids) == 1
    assert len({each.key for each in found}) == len(found)
