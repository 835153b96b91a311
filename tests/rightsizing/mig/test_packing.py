"""MIG layouts: valid for every model, the fewest GPUs against all ways there are, and quick for any demand."""

import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.model.recommendation import Placement
from gpuwatch.rightsizing.mig.cuts import cuts, valid
from gpuwatch.rightsizing.mig.packing import fewest, pack
from gpuwatch.rightsizing.model.mig_profiles import GpuModel, Profile, model_of, table
from tests.rightsizing.mig.mig_brute import brute, drawn, first_fit
from tests.seeds import examples, seeded

MODELS = table().gpus
A100 = model_of("NVIDIA A100-SXM4-40GB").plain()
DEMANDS = 50


def placed(*where: tuple[str, int], profiles: tuple[Profile, ...] = A100) -> tuple[Placement, ...]:
    sizes = {profile.name: profile.size for profile in profiles}
    return tuple(Placement(profile=name, start=start, size=sizes[name]) for name, start in where)


def lost(layouts: tuple[tuple[Placement, ...], ...], profiles: tuple[Profile, ...]) -> int:
    """Memory slices that are free, and that no further instance can have."""
    total = 0
    for layout in layouts:
        taken = {at for each in layout for at in range(each.start, each.start + each.size)}
        for profile in profiles:
            for start in profile.starts:
                more = (*layout, Placement(profile=profile.name, start=start, size=profile.size))
                taken |= set(range(start, start + profile.size)) if valid(more, profiles) is None else set()
        total += max(profile.memory_slices for profile in profiles) - len(taken)
    return total


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_cut_of_every_model_is_valid_and_none_is_missing(model: GpuModel) -> None:
    profiles = model.plain()
    found = cuts(profiles)
    assert all(valid(cut.placements, profiles) is None for cut in found)
    counts = {cut.counts for cut in found}
    assert len(counts) == len(found)
    for cut in found:
        assert cut.counts == tuple(Counter(each.profile for each in cut.placements)[each.name] for each in profiles)
        fewer = [tuple(n - (at == here) for here, n in enumerate(cut.counts)) for at, n in enumerate(cut.counts) if n]
        assert all(less in counts for less in fewer if any(less)), "what fits, fits with less"
    for profile in profiles:
        assert max(cut.counts[profiles.index(profile)] for cut in found) == profile.max_instances


def test_cuts_of_an_a100_are_those_that_are_documented() -> None:
    documented = [
        {"7g.40gb": 1}, {"4g.20gb": 1, "3g.20gb": 1}, {"4g.20gb": 1, "2g.10gb": 1, "1g.5gb": 1},
        {"4g.20gb": 1, "1g.5gb": 3}, {"3g.20gb": 2}, {"3g.20gb": 1, "2g.10gb": 2},
        {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}, {"3g.20gb": 1, "1g.5gb": 4}, {"2g.10gb": 3, "1g.5gb": 1},
        {"2g.10gb": 2, "1g.5gb": 3}, {"2g.10gb": 1, "1g.5gb": 5}, {"1g.5gb": 7}, {"1g.10gb": 4},
    ]  # fmt: skip
    possible = [Counter(each.profile for each in cut.placements) for cut in cuts(A100)]
    assert all(Counter(layout) in possible for layout in documented)
    impossible = [
        {"4g.20gb": 2},
        {"3g.20gb": 3},
        {"1g.5gb": 8},
        {"2g.10gb": 4},
        {"4g.20gb": 1, "3g.20gb": 1, "1g.5gb": 1},
    ]
    assert not [layout for layout in impossible if Counter(layout) in possible]


BALANCED = {
    "A30-24GB": {"1g.6gb": 2, "2g.12gb": 1},
    "A100-40GB": {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1},
    "A100-80GB": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    "H100-80GB-SXM5": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    "H100-80GB-PCIe": {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1},
    "H100-94GB-NVL": {"1g.12gb": 2, "2g.24gb": 1, "3g.47gb": 1},
    "H100-96GB": {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
    "H20-96GB": {"1g.12gb": 2, "2g.24gb": 1, "3g.48gb": 1},
    "H200-141GB": {"1g.18gb": 2, "2g.35gb": 1, "3g.71gb": 1},
    "GH200-144GB": {"1g.18gb": 2, "2g.36gb": 1, "3g.72gb": 1},
    "B200-180GB": {"1g.23gb": 2, "2g.45gb": 1, "3g.90gb": 1},
    "GB200-186GB": {"1g.23gb": 2, "2g.47gb": 1, "3g.93gb": 1},
    "B300-270GB": {"1g.34gb": 2, "2g.67gb": 1, "3g.135gb": 1},
    "GB300-278GB": {"1g.35gb": 2, "2g.70gb": 1, "3g.139gb": 1},
    "RTX-PRO-6000-96GB": {"1g.24gb": 2, "2g.48gb": 1},
}
"""`all-balanced` of NVIDIA's GPU operator."""


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_what_nvidias_operator_cuts_is_possible(model: GpuModel) -> None:
    (layout,) = fewest(BALANCED[model.name], model.plain()).layouts
    assert Counter(each.profile for each in layout) == BALANCED[model.name]


def test_what_a_real_h200_was_cut_into_is_possible() -> None:
    text = (Path(__file__).parents[2] / "captures" / "h200-mig__590.48.01.txt").read_text()
    parts = re.findall(r"^  MIG (?:(\d)c\.)?(\S+) +Device", text, re.MULTILINE)
    whole = Counter(profile for part, profile in parts if part in ("", "1"))
    assert whole == {"3g.71gb": 1, "2g.35gb": 1, "1g.18gb": 2}
    assert len(fewest(whole, model_of("NVIDIA H200").plain()).layouts) == 1


@pytest.mark.parametrize(
    ("layout", "wrong"),
    [
        ((("3g.20gb", 0), ("3g.20gb", 4)), None),
        ((("4g.20gb", 0), ("2g.10gb", 4), ("1g.5gb", 6)), None),
        ((("1g.5gb", 7),), "1g.5gb cannot take 1 memory slices from 7"),
        ((("4g.20gb", 4),), "4g.20gb cannot take 4 memory slices from 4"),
        ((("3g.20gb", 0), ("1g.5gb", 3)), "overlap"),
    ],
)
def test_what_is_wrong_with_a_layout(layout: tuple[tuple[str, int], ...], wrong: str | None) -> None:
    found = valid(placed(*layout), A100)
    assert found is None if wrong is None else wrong in found


def test_a_profile_of_another_gpu_is_no_layout() -> None:
    assert "no profile 1g.10gb+me" in valid((Placement(profile="1g.10gb+me", start=0, size=1),), A100)
    assert "cannot take" in valid((Placement(profile="1g.5gb", start=0, size=2),), A100)


def test_only_one_instance_has_the_media_engines() -> None:
    profiles = model_of("NVIDIA A30").profiles
    both = placed(("1g.6gb+me", 0), ("2g.12gb+me", 2), profiles=profiles)
    assert valid(both, profiles) == "more than one instance with media engines"
    assert valid(both[:1], profiles) is None
    assert pack({"1g.6gb+me": 2, "1g.6gb": 6}, profiles, 9)
    assert [sum(each.profile.endswith("+me") for each in layout) for layout in pack({"1g.6gb+me": 3}, profiles, 9)] == [
        1
    ] * 3


@pytest.mark.parametrize("seed", seeded(range(20)))
def test_the_fewest_gpus_and_the_least_waste_of_all_ways(seed: int) -> None:
    chance = random.Random(seed)
    for turn in range(DEMANDS):
        profiles = MODELS[turn % len(MODELS)].plain()
        demand = drawn(profiles, 8, chance)
        found = fewest(demand, profiles)
        assert all(valid(layout, profiles) is None for layout in found.layouts)
        assert Counter(each.profile for layout in found.layouts for each in layout) == demand
        gpus, waste = brute(demand, profiles)
        assert (len(found.layouts), lost(found.layouts, profiles)) == (gpus, waste), demand
        assert found.proven


def test_a_3g_and_two_2g_fit_on_one_gpu_where_first_fit_takes_two() -> None:
    demand = Counter({"2g.10gb": 2, "3g.20gb": 1})
    assert (len(fewest(demand, A100).layouts), brute(demand, A100)[0], first_fit(demand, A100)) == (1, 1, 2)


def by_hand(demand: Counter[str], profiles: tuple[Profile, ...]) -> int:
    """The fewest GPUs of the seven-slice models, by reasoning over their halves.

    The first half holds a 4g or a 3g or two pairs of slices, the second a 3g or a pair and a place for one 1g of either
    width. A 3g is best in a second half, the wide 1g in that last place.
    """
    one, wide, two, three, four, seven = (demand[profile.name] for profile in profiles)
    gpus = max(four, -(-(three + four) // 2))
    while True:
        pairs = 2 * (gpus - four - max(0, three - gpus)) + gpus - min(three, gpus)
        places = gpus - min(three, gpus)
        pairs -= two + max(0, wide - places)
        if pairs >= 0 and max(0, one - max(0, places - wide)) <= 2 * pairs:
            return gpus + seven
        gpus += 1


@settings(max_examples=examples(150))
@given(st.lists(st.integers(0, 400), min_size=6, max_size=6))
def test_large_demands_are_packed_on_the_fewest_too(counts: list[int]) -> None:
    demand = Counter({profile.name: count for profile, count in zip(A100, counts, strict=True) if count})
    found = fewest(demand, A100)
    assert len(found.layouts) == by_hand(demand, A100)
    assert found.proven
    assert Counter(each.profile for layout in found.layouts for each in layout) == demand
    assert all(valid(layout, A100) is None for layout in set(found.layouts))


def test_ten_thousands_of_instances_take_no_time() -> None:
    demand = {profile.name: 9_973 + at for at, profile in enumerate(A100)}
    cuts(A100)
    began = time.thread_time()
    found = fewest(demand, A100)
    assert time.thread_time() - began < 5
    assert found.proven
    assert len(found.layouts) == by_hand(Counter(demand), A100)


def test_too_few_gpus_get_the_fullest_layouts() -> None:
    some = pack({"3g.20gb": 2, "1g.5gb": 1}, A100, 1)
    assert [[each.profile for each in layout] for layout in some] == [["3g.20gb", "3g.20gb"]]
    assert pack({"3g.20gb": 2}, A100, 0) == ()
    assert pack({}, A100, 4) == ()
    assert fewest({}, A100).proven


def test_the_same_demand_has_the_same_layouts() -> None:
    demand = {"1g.5gb": 5, "2g.10gb": 4, "3g.20gb": 3}
    assert fewest(demand, A100) == fewest(dict(reversed(demand.items())), A100)


def test_a_profile_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no profile 1g\.10gb\+me"):
        pack({"1g.10gb+me": 1}, A100, 1)
