"""How much slower work would be on a MIG instance: by hand, at its bounds, and never to its favour when unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.model.mig_profiles import Profile, model_of
from gpuwatch.rightsizing.model.usage import UsageWindow
from gpuwatch.rightsizing.usage.mig_slowdown import of_whole_gpu, slowdowns

H100 = model_of("NVIDIA H100 80GB HBM3")
BY_NAME = {profile.name: profile for profile in H100.profiles}
PROFILES = st.sampled_from(H100.plain())
RATIO = st.floats(0, 1)
MAYBE = st.none() | RATIO


def slowdown(work: UsageWindow, profile: Profile, *, high: bool) -> float | None:
    """One end, for one profile."""
    found = slowdowns(work, (profile,))
    return None if found is None else found[0][high]


def window(**measured: float | None) -> UsageWindow:
    key = WorkloadKey(namespace="a", name="b")
    return UsageWindow(at=0.0, span=60.0, covered=60.0, key=key, pod="b-0", gpu="GPU-1", **measured)


def test_manual_actions() -> None:
    work = window(busy=0.5, sm=0.2, dram=0.1, pipe=0.08)
    third = BY_NAME["3g.40gb"]
    assert slowdown(work, third, high=True) == 0
    one = BY_NAME["1g.10gb"]
    assert slowdown(work, one, high=True) == pytest.approx(0.2 / (16 / 132) - 0.5, abs=0.001)
    low = max(0.08 / 0.8 / (16 / 132), 0.1 / (0.9 / 8)) - 0.5
    assert slowdown(work, one, high=False) == pytest.approx(low, abs=0.001)


def test_bandwidth_comes_with_memory_slices() -> None:
    work = window(busy=0.6, sm=0.05, dram=0.45)
    assert slowdown(work, BY_NAME["1g.10gb"], high=True) == pytest.approx(0.45 / (0.9 / 8) - 0.6)
    assert slowdown(work, BY_NAME["1g.20gb"], high=True) == pytest.approx(0.45 / (0.9 / 4) - 0.6)
    assert slowdown(work, BY_NAME["4g.40gb"], high=True) == pytest.approx(1.0 - 0.6)


def test_the_high_end_is_of_the_windows_high_ends() -> None:
    work = window(busy=0.3, busy_high=0.9, sm=0.1, sm_high=0.6, dram=0.05, dram_high=0.3)
    assert slowdown(work, BY_NAME["2g.20gb"], high=True) == pytest.approx(0.6 / BY_NAME["2g.20gb"].sm_share - 0.9)
    assert slowdown(work, BY_NAME["2g.20gb"], high=False) == pytest.approx(0.1 / BY_NAME["2g.20gb"].sm_share - 0.3)


def test_unknown_without_busy() -> None:
    assert slowdown(window(sm=0.1, dram=0.1), BY_NAME["1g.10gb"], high=True) is None
    assert slowdown(window(sm=0.1, dram=0.1), BY_NAME["1g.10gb"], high=False) is None


def test_what_is_unknown_is_needed_whenever_a_kernel_ran() -> None:
    unknown, full = window(busy=0.4), window(busy=0.4, sm=0.4, dram=0.4)
    for profile in H100.plain():
        assert slowdown(unknown, profile, high=True) == slowdown(full, profile, high=True)
    assert slowdown(unknown, BY_NAME["1g.10gb"], high=False) == 0


def test_idle_work_is_never_slower() -> None:
    for profile in H100.plain():
        assert slowdown(window(busy=0.0, sm=0.0, dram=0.0), profile, high=True) == 0


def test_the_whole_gpu_in_mig_mode_has_a_tenth_less_bandwidth_that_counts() -> None:
    whole = BY_NAME["7g.80gb"]
    assert slowdown(window(busy=1.0, sm=1.0, dram=0.9), whole, high=True) == 0


@given(PROFILES, RATIO, MAYBE, MAYBE, MAYBE)
def test_low_is_never_above_high(
    profile: Profile, busy: float, sm: float | None, dram: float | None, pipe: float | None
) -> None:
    work = window(busy=busy, sm=sm, dram=dram, pipe=pipe)
    low, high = slowdown(work, profile, high=False), slowdown(work, profile, high=True)
    assert low is not None
    assert high is not None
    assert 0 <= low <= high + 1e-9


@given(RATIO, MAYBE, MAYBE)
def test_more_of_everything_is_never_slower(busy: float, sm: float | None, dram: float | None) -> None:
    work = window(busy=busy, sm=sm, dram=dram)
    for less in H100.plain():
        for more in H100.plain():
            if less.sm_share <= more.sm_share and less.memory_fraction <= more.memory_fraction:
                assert slowdown(work, less, high=True) >= slowdown(work, more, high=True)


@given(PROFILES, RATIO, RATIO, RATIO)
def test_what_an_instance_did_fits_the_same_instance(profile: Profile, busy: float, sm: float, dram: float) -> None:
    """But for bandwidth above what its share can really draw."""
    sm, dram = min(sm, busy), min(dram, busy, 0.9 * busy)
    whole = of_whole_gpu(profile, sm=sm, dram=dram, pipe=None)
    work = window(busy=busy, sm=whole[0], dram=whole[1], pipe=whole[2])
    assert slowdown(work, profile, high=True) == pytest.approx(0, abs=1e-9)


def test_nothing_is_made_of_nothing() -> None:
    assert of_whole_gpu(BY_NAME["1g.10gb"], sm=None, dram=None, pipe=None) == (None, None, None)
    assert of_whole_gpu(BY_NAME["1g.10gb"], sm=1.0, dram=1.0, pipe=0.5) == (
        BY_NAME["1g.10gb"].sm_share, 0.125, 0.5 * BY_NAME["1g.10gb"].sm_share,
    )  # fmt: skip
