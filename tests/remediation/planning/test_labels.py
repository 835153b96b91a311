"""Labels for schedulers: what they say, that they change seldom, and that a person's are left alone."""

import re
import time
from itertools import pairwise
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.model.finding import SchedulingLabel
from gpuwatch.model.snapshot import Gpu, Identity, Memory, NvLink
from gpuwatch.remediation.model import DEGRADED, GPU_CLASS, HEALTHY_COUNT, LABELS, NVLINK, OPT_OUT, PatchNode
from gpuwatch.remediation.planning.labels import GIB, LABEL_SECONDS, gpu_class, nvlink, outdated, values
from gpuwatch.remediation.planning.manual_quarantine import QuarantineRequest, release
from gpuwatch.sim.node.profiles import MODELS
from tests.remediation.planning.remediating import GPUS, START, Story, finding

MIB = 2**20
EVERY = get_args(SchedulingLabel)
HEALTHY = {HEALTHY_COUNT: "2", NVLINK: "none"}


def gpu(name: str | None, mib: int | None = None, links: str = "") -> Gpu:
    """`links`: one character each, `1` for one that is up."""
    return Gpu(
        identity=Identity(index=0, uuid="u", pci_bus_id="0", name=name),
        memory=Memory(total=None if mib is None else mib * MIB),
        nvlinks=tuple(NvLink(link=number, active=state == "1") for number, state in enumerate(links)),
    )


SOLD_AS = {"t4": "t4-16", "a100": "a100-80", "h100": "h100-80", "h200": "h200-141", "b200": "b200-180",
           "l40s": "l40s-48", "rtx4080s": "rtx-4080-super-16", "gb10": "gb10"}  # fmt: skip


def test_every_simulated_model_has_its_class() -> None:
    memory = {key: None if model.unified else model.memory for key, model in MODELS.items()}
    assert {key: gpu_class([gpu(model.name, memory[key])]) for key, model in MODELS.items()} == SOLD_AS


@pytest.mark.parametrize(
    ("name", "mib", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB", 40960, "a100-40"),
        ("NVIDIA A100-PCIE-40GB", 40536, "a100-40"),
        ("Tesla V100-SXM2-32GB", 32768, "v100-32"),
        ("NVIDIA H100 NVL", 95830, "h100-94"),
        ("NVIDIA H20", 97871, "h20-96"),
        ("NVIDIA GH200 480GB", 97871, "gh200-96"),
        ("NVIDIA GB200", 189471, "gb200-186"),
        ("NVIDIA B300 SXM6 AC", 275040, "b300-288"),
        ("NVIDIA A10", 23028, "a10-24"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 97887, "rtx-pro-6000-blackwell-server-edition-96"),
        ("NVIDIA A100-SXM-64GB", 65536, "a100-64"),
        ("NVIDIA L4", None, "l4"),
        ("NVIDIA Odd", 3 * 1024, "odd-3"),
        ("NVIDIA", 81559, "gpu-80"),
    ],
)
def test_a_class_is_the_model_and_the_memory_it_is_sold_with(name: str, mib: int, expected: str) -> None:
    assert gpu_class([gpu(name, mib)]) == expected


def test_several_models_are_mixed_and_unnamed_ones_are_not_guessed() -> None:
    a, b = gpu("NVIDIA H100 80GB HBM3", 81559), gpu("NVIDIA A100-SXM4-80GB", 81920)
    assert gpu_class([a, a]) == "h100-80"
    assert gpu_class([a, b]) == "mixed"
    assert gpu_class([a, gpu("NVIDIA H100 80GB HBM3")]) == "h100-80"  # its memory could not be read
    assert gpu_class([gpu(None)]) is None


@given(st.text(max_size=120), st.integers(0, 10**6))
def test_a_class_is_a_label_whatever_the_name(name: str, mib: int) -> None:
    found = gpu_class([gpu(name, mib)])
    assert found is None or (len(found) <= 63 and re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", found))


@pytest.mark.parametrize(
    ("links", "missing", "expected"),
    [
        (["111", "111"], 0, "full"),
        (["111", "110"], 0, "partial"),
        (["111", ""], 0, "partial"),
        (["111", "111"], 1, "partial"),
        (["000", "000"], 0, "none"),
        (["", ""], 0, "none"),
        ([], 0, "none"),
    ],
)
def test_links(links: list[str], missing: int, expected: str) -> None:
    assert nvlink([gpu("x", links=each) for each in links], missing=missing) == expected


def story(**settings: Any) -> Story:
    """A node that has been labelled."""
    made = Story(**({"labels": EVERY} | settings))
    made.settle()
    return made


def labels(made: Story) -> dict[str, str]:
    return {key: value for key, value in made.node.labels.items() if key.startswith("gpuwatch.io/")}


def patches(made: Story) -> list[PatchNode]:
    return [step for step in made.done if isinstance(step, PatchNode) and step.step == "label"]


def test_a_healthy_node_is_labelled_once() -> None:
    made = story()
    assert labels(made) == HEALTHY
    for _ in range(30):
        made.wait(60.0)
        made.see()
        made.settle()
    assert len(patches(made)) == 1


def test_a_fault_is_reported_though_it_does_not_taint_and_its_end_is() -> None:
    made = story(checks={"gpu_lost": "condition"})
    made.wait(LABEL_SECONDS)
    made.see(finding("gpu_lost", at=made.now))
    made.settle()
    assert labels(made) == {DEGRADED: "true", HEALTHY_COUNT: "1", NVLINK: "none"}
    made.wait(LABEL_SECONDS)
    made.see()
    made.settle()
    assert labels(made) == HEALTHY


def test_a_quarantined_node_is_degraded_until_it_is_released() -> None:
    made = story(recovery_hold=3 * LABEL_SECONDS)
    made.wait(LABEL_SECONDS)
    made.see(finding("gpu_lost", at=made.now))
    made.settle()
    assert labels(made)[DEGRADED] == "true"
    made.see()
    made.wait(LABEL_SECONDS)
    made.settle()
    assert (labels(made)[DEGRADED], made.node.taint is not None) == ("true", True)
    made.recover()
    made.wait(LABEL_SECONDS)
    made.settle()
    assert (labels(made), made.node.taint) == (HEALTHY, None)


@pytest.mark.parametrize("names", [EVERY, ("gpu-degraded",)])
def test_a_gpu_that_comes_and_goes_changes_labels_once_in_five_minutes(names: tuple[str, ...]) -> None:
    made = story(checks={"gpu_lost": "condition"}, labels=names)
    times: list[float] = []
    for second in range(3000):
        made.now = START + 1000 + second
        made.see(*([finding("gpu_lost", at=made.now)] if second % 2 else []))
        before = len(patches(made))
        made.settle(limit=20)
        times += [made.now] * (len(patches(made)) - before)
    assert len(times) > 5
    assert min(b - a for a, b in pairwise(times)) >= LABEL_SECONDS


def test_what_is_not_known_changes_nothing() -> None:
    made = story()
    made.wait(LABEL_SECONDS)
    made.see(unknown=GPUS[:1])
    made.settle()
    made.age = 120.0
    made.settle()
    assert (labels(made), len(patches(made))) == (HEALTHY, 1)
    assert values(replace(made.view, judgement=replace(made.view.judgement, gpus={})), degraded=True) == {}


def test_a_gpu_that_is_lost_counts_no_longer_and_breaks_the_links() -> None:
    made = Story()
    made.see(lost=("GPU-9",))
    linked = replace(made.view.snapshot, gpus=(gpu("NVIDIA H100", 81559, "11"), gpu("NVIDIA H100", 81559, "11")))
    found = values(replace(made.view, snapshot=linked), degraded=False)
    assert found == {HEALTHY_COUNT: "2", NVLINK: "partial", DEGRADED: None, GPU_CLASS: "h100-80"}


def test_a_label_that_a_person_has_set_or_changed_is_theirs() -> None:
    made = Story(labels=EVERY)
    made.cluster.edit(labels={NVLINK: "mine"})
    made.settle()
    assert labels(made) == {NVLINK: "mine", HEALTHY_COUNT: "2"}
    made.cluster.edit(labels={NVLINK: "mine", HEALTHY_COUNT: "many"})
    made.wait(LABEL_SECONDS)
    made.settle()
    gone = release(made.node, QuarantineRequest(at=made.now, reason="x"), (), forget=True)
    for step in gone.steps:
        made.cluster.do(step, made.now)
    assert labels(made) == {NVLINK: "mine", HEALTHY_COUNT: "many"}
    assert LABELS not in made.node.annotations


def test_a_label_that_a_person_has_taken_off_comes_back_when_it_says_something_else() -> None:
    made = story(checks={"gpu_lost": "condition"})
    made.cluster.edit(labels={NVLINK: "none"})
    made.wait(LABEL_SECONDS)
    made.settle()
    assert labels(made) == {NVLINK: "none"}
    made.see(finding("gpu_lost", at=made.now))
    made.settle()
    assert labels(made)[HEALTHY_COUNT] == "1"


@pytest.mark.parametrize("end", ["opt-out", "switched off", "forgotten"])
def test_they_are_removed(end: str) -> None:
    made = story()
    made.wait(LABEL_SECONDS)
    if end == "opt-out":
        made.cluster.edit(annotations=made.node.annotations | {OPT_OUT: "true"})
    elif end == "switched off":
        made.policy = Story().policy
    else:
        for step in release(made.node, QuarantineRequest(at=made.now, reason="x"), (), forget=True).steps:
            made.cluster.do(step, made.now)
        assert (labels(made), LABELS in made.node.annotations) == ({}, False)
        return
    made.settle()
    assert (labels(made), LABELS in made.node.annotations) == ({}, False)


def test_a_manual_release_leaves_them() -> None:
    made = story()
    for step in release(made.node, QuarantineRequest(at=made.now, reason="x"), ()).steps:
        made.cluster.do(step, made.now)
    assert labels(made) == HEALTHY


def test_an_annotation_that_cannot_be_read_makes_no_label_ours() -> None:
    made = story()
    made.cluster.edit(annotations={LABELS: "{"}, labels={HEALTHY_COUNT: "7"})
    made.wait(LABEL_SECONDS)
    made.settle()
    assert labels(made) == {HEALTHY_COUNT: "7"}


def test_labels_that_nobody_keeps_up_to_date_are_reported() -> None:
    made = story()
    assert outdated(made.node, values(made.view, degraded=False)) == {}
    assert outdated(made.node, {HEALTHY_COUNT: "1"}) == {HEALTHY_COUNT: "2"}
    assert GIB == 1024 * MIB


def test_a_name_of_any_length_costs_time_by_its_length() -> None:
    began = time.process_time()
    assert gpu_class([gpu("NVIDIA H100 " + "8" * 100_000, 80 << 10)]) is not None
    assert time.process_time() - began < 5.0
