"""MIG layouts: valid for every model, nearly the fewest GPUs of all ways there are, and quick for any demand."""

import random
import re
import time
from collections import Counter
from pathlib import Path

import pytest

from gpuwatch.rightsizing.findings.mig_packing import cuts, layout_error, pack
from gpuwatch.rightsizing.model.mig_profiles import GpuModel, Profile, model_of, table
from gpuwatch.rightsizing.model.recommendation import Placement
from tests.rightsizing.findings.mig_brute import brute, drawn, first_fit
from tests.seeds import seeded

MODELS = table().gpus
A100 = model_of("NVIDIA A100-SXM4-40GB").plain()
DEMANDS = 50


def placed(*where: tuple[str, int], profiles: tuple[Profile, ...] = A100) -> tuple[Placement, ...]:
    sizes = {profile.name: profile.size for profile in profiles}
    return tuple(Placement(profile=name, start=start, size=sizes[name]) for name, start in where)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
def test_every_cut_of_every_model_is_valid_and_none_is_missing(model: GpuModel) -> None:
    profiles = model.plain()
    found = cuts(profiles)
    assert all(layout_error(cut.placements, profiles) is None for cut in found)
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
    (layout,) = pack(BALANCED[model.name], model.plain())
    assert Counter(each.profile for each in layout) == BALANCED[model.name]


def test_what_a_real_h200_was_cut_into_is_possible() -> None:
    text = (Path(__file__).parents[2] / "captures" / "h200-mig__590.48.01.txt").read_text()
    parts = re.findall(r"^  MIG (?:(\d)c\.)?(\S+) +Device", text, re.MULTILINE)
    whole = Counter(profile for part, profile in parts if part in ("", "1"))
    assert whole == {"3g.71gb": 1, "2g.35gb": 1, "1g.18gb": 2}
    assert len(pack(whole, model_of("NVIDIA H200").plain())) == 1


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
    found = layout_error(placed(*layout), A100)
    assert found is None if wrong is None else wrong in found


def test_a_profile_of_another_gpu_is_no_layout() -> None:
    assert "no profile 1g.10gb+me" in layout_error((Placement(profile="1g.10gb+me", start=0, size=1),), A100)
    assert "cannot take" in layout_error((Placement(profile="1g.5gb", start=0, size=2),), A100)


def test_only_one_instance_has_the_media_engines() -> None:
    profiles = model_of("NVIDIA A30").profiles
    both = placed(("1g.6gb+me", 0), ("2g.12gb+me", 2), profiles=profiles)
    assert layout_error(both, profiles) == "more than one instance with media engines"
    assert layout_error(both[:1], profiles) is None
    assert pack({"1g.6gb+me": 2, "1g.6gb": 6}, profiles, 9)
    assert [sum(each.profile.endswith("+me") for each in layout) for layout in pack({"1g.6gb+me": 3}, profiles, 9)] == [
        1
    ] * 3


@pytest.mark.parametrize("seed", seeded(range(20)))
def test_hardly_more_gpus_than_the_fewest_of_all_ways(seed: int) -> None:
    chance = random.Random(seed)
    gpus = fewest = 0
    for turn in range(DEMANDS):
        profiles = MODELS[turn % len(MODELS)].plain()
        demand = drawn(profiles, 8, chance)
        found = pack(demand, profiles)
        assert all(layout_error(layout, profiles) is None for layout in found)
        assert Counter(each.profile for layout in found for each in layout) == demand
        best = brute(demand, profiles)[0]
        assert len(found) <= best + 1, demand
        gpus, fewest = gpus + len(found), fewest + best
    assert gpus <= 1.02 * fewest


def test_a_3g_and_two_2g_fit_on_one_gpu_where_first_fit_takes_two() -> None:
    demand = Counter({"2g.10gb": 2, "3g.20gb": 1})
    assert (len(pack(demand, A100)), brute(demand, A100)[0], first_fit(demand, A100)) == (1, 1, 2)


def test_large_demands_take_hardly_more_gpus_than_their_memory_and_no_time() -> None:
    demand = {profile.name: 973 + at for at, profile in enumerate(A100)}
    cuts(A100)
    began = time.thread_time()
    found = pack(demand, A100)
    assert time.thread_time() - began < 5
    assert Counter(each.profile for layout in found for each in layout) == demand
    assert all(layout_error(layout, A100) is None for layout in set(found))
    assert len(found) <= 1.02 * first_fit(Counter(demand), A100)


def test_too_few_gpus_get_the_fullest_layouts() -> None:
    some = pack({"3g.20gb": 2, "1g.5gb": 1}, A100, 1)
    assert [[each.profile for each in layout] for layout in some] == [["3g.20gb", "3g.20gb"]]
    assert pack({"3g.20gb": 2}, A100, 0) == ()
    assert pack({}, A100, 4) == ()


def test_the_same_demand_has_the_same_layouts() -> None:
    demand = {"1g.5gb": 5, "2g.10gb": 4, "3g.20gb": 3}
    assert pack(demand, A100) == pack(dict(reversed(demand.items())), A100)


def test_a_profile_that_the_model_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match=r"no profile 1g\.10gb\+me"):
        pack({"1g.10gb+me": 1}, A100, 1)
