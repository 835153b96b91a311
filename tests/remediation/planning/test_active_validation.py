"""`validate: active`: a quarantine ends only once the active checks have passed on what failed, after it failed."""

from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.kube.objects import TAINT
from gpuwatch.model.finding import Response
from gpuwatch.model.snapshot import Host
from gpuwatch.model.view import Validation
from gpuwatch.remediation.model import BlockReason, Fault, NodeStage
from gpuwatch.remediation.planning.evidence import fault_age, unvalidated
from tests.remediation.planning.remediating import HOST, START, Story, finding, policy, view


def quarantined(*faults: Any, **settings: Any) -> Story:
    story = Story(**({"validate": "active", "checks": {"gpu_lost": "taint"}} | settings))
    story.see(*(faults or (finding("gpu_lost"),)))
    story.settle()
    assert story.node.taint is not None
    return story


def well(story: Story, *proofs: Validation, **more: Any) -> Any:
    """The GPUs are well for long enough, and this is what was validated; the plan that ends it."""
    story.now += 10.0
    story.view, story.age = replace(view(at=story.now, **more), validations=proofs), 0.0
    story.clean_for = 0.0
    story.cycle()
    story.wait(story.policy.config.recovery_hold + story.policy.config.min_quarantine)
    return story.cycle()


def proof(gpu: str = "GPU-0", at: float = START + 5, **more: Any) -> Validation:
    return Validation(**({"gpu": gpu, "at": at, "passed": True, "boot_id": HOST.boot_id} | more))


def test_a_gpu_that_passed_since_its_fault_ends_the_quarantine() -> None:
    story = quarantined()
    well(story, proof())
    assert story.node.taint is None


def test_passive_asks_for_no_proof() -> None:
    story = quarantined(validate="passive")
    well(story)
    assert story.node.taint is None


@pytest.mark.parametrize(
    ("proofs", "why"),
    [
        ((), "GPU 0 has not passed active checks since its fault"),
        ((proof("GPU-1"),), "GPU 0 has not passed"),
        ((proof(at=START),), "GPU 0 has not passed"),
        ((proof(boot_id="boot-0"),), "GPU 0 has not passed"),
        ((proof(passed=False, message="X03: 1 of 9 words are wrong"),), "GPU 0 failed X03: 1 of 9 words are wrong"),
    ],
)
def test_without_a_proof_of_that_gpu_after_its_fault_in_this_boot_the_quarantine_stays(proofs: Any, why: str) -> None:
    story = quarantined()
    made = well(story, *proofs)
    assert story.node.taint is not None
    assert made.stage is NodeStage.RECOVERING
    (obstacle,) = made.blocked
    assert obstacle.reason is BlockReason.VALIDATION
    assert why in obstacle.message
    assert "gpuwatch node validate" in obstacle.message


def test_a_fault_of_the_node_asks_for_a_proof_of_every_gpu() -> None:
    story = quarantined(finding("driver_wedged", gpu=None), checks={"driver_wedged": "taint"})
    well(story, proof("GPU-0"))
    assert story.node.taint is not None
    well(story, proof("GPU-0"), proof("GPU-1"))
    assert story.node.taint is None


def test_a_replaced_gpu_asks_for_a_proof_of_every_gpu() -> None:
    story = quarantined()
    host = Host(boot_id="boot-2", machine_id=HOST.machine_id)
    story.cluster.node = replace(story.node, host=host)
    well(story, proof("GPU-1", boot_id="boot-2"), gpus=("GPU-1", "GPU-2"), host=host)
    assert story.node.taint is not None
    both = (proof("GPU-1", boot_id="boot-2"), proof("GPU-2", boot_id="boot-2"))
    well(story, *both, gpus=("GPU-1", "GPU-2"), host=host)
    assert story.node.taint is None


def test_a_proof_never_stands_in_for_a_gpu_that_is_sick() -> None:
    story = quarantined()
    story.view = replace(story.view, validations=(proof(),)) if story.view else None
    story.wait(10_000.0)
    story.cycle()
    assert any(taint.key == TAINT for taint in story.node.taints)


FAULTS = (Fault(key="gpu_lost/GPU-0", check="gpu_lost", response=Response.TAINT, gpu="GPU-0", last=START),)


@pytest.mark.parametrize(
    ("proofs", "found"),
    [
        ((), ("GPU 0 has not passed active checks since its fault",)),
        ((proof(boot_id="boot-0"),), ("GPU 0 has not passed active checks since its fault",)),
        ((proof(boot_id="boot-0"), proof()), ()),
        ((proof(),), ()),
        ((proof(at=START),), ("GPU 0 has not passed active checks since its fault",)),
        ((proof(passed=False, message="X03"),), ("GPU 0 failed X03",)),
        ((proof(), proof("GPU-1", passed=False, message="X03")), ()),
    ],
)
def test_what_has_not_been_validated(proofs: Any, found: tuple[str, ...]) -> None:
    """The proofs are judged GPU by GPU: what another one failed is not asked for."""
    seen = replace(view(), validations=proofs)
    assert unvalidated(seen, FAULTS, policy(validate="active", checks={"gpu_lost": "taint"})) == found


@pytest.mark.parametrize(("since", "age"), [(None, 0.0), (START - 30.0, 30.0), (START + 5.0, 0.0)])
def test_the_age_of_a_fault_is_never_negative(since: float | None, age: float) -> None:
    assert fault_age(replace(FAULTS[0], since=since), view().snapshot) == age
