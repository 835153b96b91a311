"""Layouts are only for GPUs that nobody holds, only where they serve, and leave alone what serves already."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.findings.mig_layout import layouts
from gpuwatch.rightsizing.findings.mig_packing import layout_error
from gpuwatch.rightsizing.model.mig_profiles import model_of
from gpuwatch.rightsizing.model.recommendation import (
    Evidence,
    FindingKind,
    Level,
    Recommendation,
    RecommendationTarget,
    RecommendedAction,
    RecommendedChange,
    Savings,
)
from gpuwatch.rightsizing.model.usage import FleetFacts, GpuFacts

A100, H100, T4 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "Tesla T4"
CONFIG = RightsizingConfig()
NOW = 1_700_000_000.0


def fit(
    profile: str, pods: int = 1, *, name: str = "web", model: str = A100, sure: Level = Level.HIGH
) -> Recommendation:
    return Recommendation(
        id=f"mig-fit-{name}",
        kind=FindingKind.MIG_FIT,
        action=RecommendedAction.RESIZE,
        target=RecommendationTarget(
            namespace="team", name=name, pods=tuple(f"{name}-{at}" for at in range(pods)), model=model
        ),
        current="1 x nvidia.com/gpu",
        recommended="",
        why="",
        evidence=Evidence(days=9.0, coverage=0.99),
        confidence=sure,
        risk=Level.LOW,
        risk_text="",
        savings=Savings(gpu_hours_per_day=12.0),
        change=RecommendedChange(to_resource=f"nvidia.com/mig-{profile.replace('+', '.')}", to_count=1),
        at=NOW,
        expires=NOW + 1,
    )


def gpu(
    index: int, *, node: str = "a", model: str = A100, held: bool = False, layout: tuple[str, ...] = ()
) -> GpuFacts:
    uuid = f"GPU-{node}-{index}"
    return GpuFacts(node=node, uuid=uuid, index=index, model=model, held=held, layout=layout, mig_enabled=bool(layout))


def test_a_node_that_nobody_uses_is_cut_before_one_that_would_have_to_be_drained() -> None:
    fleet = FleetFacts(gpus=(gpu(0, held=True), gpu(1), gpu(0, node="b"), gpu(1, node="b")))
    assert cut(layouts([fit("7g.40gb")], fleet, CONFIG, NOW)) == {"GPU-b-0": ["7g.40gb"]}


def cut(found: tuple[Recommendation, ...]) -> dict[str, list[str]]:
    """Profiles by GPU."""
    return {
        layout.gpu: sorted(each.profile for each in layout.placements)
        for item in found
        for layout in item.change.layouts
    }


def test_free_gpus_are_cut_for_those_who_fit() -> None:
    fits = [fit("3g.20gb", 2), fit("1g.5gb", 3, name="tiny", sure=Level.MEDIUM)]
    found = layouts(fits, FleetFacts(gpus=(gpu(0, held=True), gpu(1), gpu(2), gpu(3))), CONFIG, NOW)
    assert cut(found) == {"GPU-a-1": ["3g.20gb", "3g.20gb"], "GPU-a-2": ["1g.5gb"] * 3}
    (item,) = found
    assert (item.kind, item.action) == (FindingKind.MIG_LAYOUT, RecommendedAction.REPARTITION)
    assert item.target == RecommendationTarget(nodes=("a",), gpus=("GPU-a-1", "GPU-a-2"), model=A100)
    assert item.current == "GPU 1: not cut, free; GPU 2: not cut, free"
    assert item.recommended == "GPU 1: 2 x 3g.20gb; GPU 2: 3 x 1g.5gb"
    assert item.why.startswith("Place for 5 instances on 2 GPUs that no pod holds, for team/web, team/tiny.")
    assert item.confidence is Level.MEDIUM, "no surer than what it is for"
    assert item.evidence == Evidence(days=9.0, coverage=0.99)
    assert item.savings.gpu_hours_per_day == 0, "counted with the workloads"
    assert item.expires == NOW + CONFIG.expire


def test_each_node_has_its_own() -> None:
    found = layouts([fit("7g.40gb", 3)], FleetFacts(gpus=(gpu(0), gpu(0, node="b"), gpu(1, node="b"))), CONFIG, NOW)
    assert [(item.target.nodes, len(item.change.layouts)) for item in found] == [(("a",), 1), (("b",), 2)]
    assert len({item.id for item in found}) == 2
    assert layouts([fit("7g.40gb", 3)], FleetFacts(gpus=(gpu(0),)), CONFIG, NOW + 60)[0].id == found[0].id


def test_a_held_gpu_is_never_cut() -> None:
    assert layouts([fit("1g.5gb")], FleetFacts(gpus=(gpu(0, held=True),)), CONFIG, NOW) == ()
    unknown = GpuFacts(node="a", uuid="GPU-x", model=A100)
    assert layouts([fit("1g.5gb")], FleetFacts(gpus=(unknown,)), CONFIG, NOW) == ()


def test_nobody_asks_nothing_is_cut() -> None:
    fleet = FleetFacts(gpus=(gpu(0),))
    assert layouts([], fleet, CONFIG, NOW) == ()
    assert layouts([msgspec.structs.replace(fit("1g.5gb"), kind=FindingKind.DUTY_CYCLED)], fleet, CONFIG, NOW) == ()
    assert layouts([fit("1g.10gb", model=H100)], fleet, CONFIG, NOW) == (), "another model"
    assert layouts([fit("1g.10gb", model=T4)], FleetFacts(gpus=(gpu(0, model=T4),)), CONFIG, NOW) == (), "no MIG"
    assert layouts([fit("1g.5gb+me")], fleet, CONFIG, NOW) == (), "not of the profiles to choose from"


def test_a_workload_without_pods_just_now_is_one() -> None:
    assert cut(layouts([fit("1g.5gb", 0)], FleetFacts(gpus=(gpu(0),)), CONFIG, NOW)) == {"GPU-a-0": ["1g.5gb"]}


def test_what_is_cut_suitably_stays() -> None:
    fleet = FleetFacts(gpus=(gpu(0), gpu(1, layout=("1g.5gb",) * 7), gpu(2, layout=("3g.20gb", "3g.20gb"))))
    assert layouts([fit("1g.5gb", 5), fit("3g.20gb", name="b")], fleet, CONFIG, NOW) == ()
    assert cut(layouts([fit("1g.5gb", 9)], fleet, CONFIG, NOW)) == {"GPU-a-0": ["1g.5gb"] * 2}


def test_a_gpu_in_mig_mode_is_taken_first_but_not_for_the_sake_of_what_it_has() -> None:
    fleet = FleetFacts(gpus=(gpu(0), msgspec.structs.replace(gpu(1), mig_enabled=True), gpu(2, layout=("7g.40gb",))))
    assert cut(layouts([fit("2g.10gb")], fleet, CONFIG, NOW)) == {"GPU-a-1": ["2g.10gb"]}


def test_too_few_gpus_are_cut_again_where_that_serves_more() -> None:
    fleet = FleetFacts(gpus=(gpu(0, layout=("1g.5gb",)), gpu(1, layout=("3g.20gb", "3g.20gb"))))
    found = layouts([fit("1g.5gb", 7), fit("3g.20gb", 2, name="b")], fleet, CONFIG, NOW)
    assert cut(found) == {"GPU-a-0": ["1g.5gb"] * 7}


def test_more_than_there_are_gpus_for_gets_the_fullest() -> None:
    found = layouts([fit("3g.20gb", 3), fit("1g.5gb", name="tiny")], FleetFacts(gpus=(gpu(4),)), CONFIG, NOW)
    assert cut(found) == {"GPU-a-4": ["3g.20gb", "3g.20gb"]}


def test_one_instance_saves_nothing_by_itself_and_reports_it() -> None:
    (item,) = layouts([fit("1g.5gb")], FleetFacts(gpus=(gpu(0),)), CONFIG, NOW)
    assert item.why.endswith("It pays when others move in, too.")


def test_many_workloads_are_counted() -> None:
    (item,) = layouts([fit("1g.5gb", name=f"w{at}") for at in range(5)], FleetFacts(gpus=(gpu(0),)), CONFIG, NOW)
    assert "team/w0, team/w1, team/w2 and 2 more" in item.why


PLAIN = model_of(A100).plain()
NAMES = st.sampled_from([profile.name for profile in PLAIN])
CUT = st.sampled_from([(), ("1g.5gb",) * 7, ("3g.20gb", "3g.20gb"), ("4g.20gb", "2g.10gb", "1g.5gb"), ("7g.40gb",)])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(NAMES, st.integers(1, 6)), max_size=4), st.lists(st.tuples(st.booleans(), CUT), max_size=5))
def test_valid_free_and_no_more_than_wanted(
    has_requests: list[tuple[str, int]], there: list[tuple[bool, tuple[str, ...]]]
) -> None:
    gpus = tuple(gpu(index, held=held, layout=layout) for index, (held, layout) in enumerate(there))
    fits = [fit(profile, pods, name=f"w{at}") for at, (profile, pods) in enumerate(has_requests)]
    found = [layout for item in layouts(fits, FleetFacts(gpus=gpus), CONFIG, NOW) for layout in item.change.layouts]
    held = {each.uuid for each in gpus if each.held}
    assert not held & {layout.gpu for layout in found}
    assert len({layout.gpu for layout in found}) == len(found)
    assert all(layout.placements and layout_error(layout.placements, PLAIN) is None for layout in found)
    wanted = sum((Counter({profile: pods}) for profile, pods in has_requests), Counter())
    given_ = Counter(each.profile for layout in found for each in layout.placements)
    assert given_ <= wanted


@pytest.mark.parametrize("free", [1, 2, 3])
def test_what_is_kept_and_what_is_cut_serve_as_much_as_cutting_all_again(free: int) -> None:
    gpus = tuple(gpu(index, layout=("1g.5gb",) * 7 if index == 0 else ()) for index in range(free))
    found = layouts([fit("2g.10gb", 3), fit("1g.5gb", 8, name="b")], FleetFacts(gpus=gpus), CONFIG, NOW)
    kept = Counter(profile for each in gpus if each.uuid not in cut(found) for profile in each.layout)
    served = (kept + Counter(profile for layout in cut(found).values() for profile in layout)) & Counter(
        {"2g.10gb": 3, "1g.5gb": 8}
    )
    sizes = {profile.name: profile.size for profile in PLAIN}
    assert sum(sizes[name] * count for name, count in served.items()) >= min(7 * free, 14)
