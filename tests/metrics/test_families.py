"""Families of metrics: groups and patterns of the configuration, `name[]`, and what the default page must have."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
from msgspec.structs import replace

from gpuwatch.agent.one_shot import OneShotCollector
from gpuwatch.agent.pages import page_families
from gpuwatch.cli.metrics.listing import AGENT_GROUPS
from gpuwatch.config import Backend, Config, FamiliesConfig, FamilyGroup, MetricsConfig, SourcesConfig
from gpuwatch.metrics.metric import Family, NvlinkCounters
from gpuwatch.metrics.native import GROUPS, collect
from gpuwatch.metrics.page_cache import MAX_SELECTIONS, PROFILES, PageCache
from gpuwatch.metrics.selection import MAX_LENGTH, requested, select, wrong_pattern
from gpuwatch.model.snapshot import Gpu, GpuState, GpuStatus, NvLink, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.rightsizing.service.metrics import rightsizing_families
from gpuwatch.sim.node.scenario import load
from gpuwatch.sim.playback import views
from tests.fakes.libnvml import FakeDriver
from tests.metrics.golden_pages import EVERYTHING
from tests.model.view_factory import AT, full_view, identity
from tests.promql import ROOT
from tests.rightsizing.model.advice_factory import advice, recommendation

MOST_SAMPLES = 1600
"""Of the default page of a node with eight H100, besides right-sizing."""

DEFAULT = MetricsConfig()
ON_DEMAND = {row.full_name for row in AGENT_GROUPS["processes"]}
"""Of what dashboards ask for; a panel without them says that `metrics.processes` switches them on."""

SCENARIOS = sorted(path.stem for path in (ROOT / "gpuwatch/sim/scenarios").glob("*.yaml"))
AT_ONCE = ("nvlink-down",)


@cache
def needed() -> frozenset[str]:
    """Families of the agent's page that an alert, a recording rule or a dashboard names, in queries or in texts."""
    files = [*(ROOT / "alerts").glob("gpuwatch.rules.yaml"), *(ROOT / "dashboards").glob("*.json")]
    assert len(files) > 4
    named = re.findall(r"\bgpuwatch_[a-z0-9_]+", "".join(map(Path.read_text, files)))
    return frozenset(named) & page_families()


def page(view: View, config: MetricsConfig, only: frozenset[str] | None = None) -> dict[str, Family]:
    extra = rightsizing_families(advice(recommendation("chat", 24.0)), 20)
    return {family.name: family for family in collect(view, config, extra=extra, only=only) if family.samples}


def choosing(**families: object) -> MetricsConfig:
    return MetricsConfig(families=FamiliesConfig(**families))  # type: ignore[arg-type]


def test_the_groups_are_those_of_the_configuration():
    assert tuple(GROUPS) == get_args(FamilyGroup)
    names = [row.name for rows in AGENT_GROUPS.values() for row in rows]
    assert len(names) == len(set(names))
    assert all(AGENT_GROUPS.values())


def test_alerts_rules_and_dashboards_need_no_family_that_is_off():
    there = {row.full_name for name in DEFAULT.families.groups for row in AGENT_GROUPS[name]}
    own = {
        name for name in page_families() if not any(name == row.full_name for g in AGENT_GROUPS.values() for row in g)
    }
    assert needed() - there - own == ON_DEMAND & needed()
    assert len(needed()) > 60


@pytest.mark.parametrize(
    "scenario", [name if name in AT_ONCE else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS]
)
def test_what_they_need_is_on_the_default_page(scenario: str):
    """Every series of a needed family that the page with all groups has, at each look of the first minutes."""
    for view in views(load(scenario), Config(), AT, 240.0, short_step=20.0, with_gpm=True):
        whole, default = page(view, EVERYTHING), page(view, DEFAULT)
        for name in needed() - ON_DEMAND & whole.keys():
            assert default.get(name) == whole.get(name), name


def test_the_default_page_of_eight_h100_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of a driver that answers every call and counts all kinds of NVLink errors."""
    with FakeDriver(tmp_path, gpus=8) as driver:
        for name, value in driver.env.items():
            monkeypatch.setenv(name, value)
        sources = SourcesConfig(disabled=("kmsg", "podresources", "procfs", "pci"))
        with OneShotCollector(Config(sources=sources, state_dir=""), Backend(target=str(driver.library))) as collector:
            collector.wait(2, 60.0)
            view = collector.view()
    assert len(view.snapshot.gpus) == 8
    assert all(len(gpu.nvlinks) == 18 for gpu in view.snapshot.gpus)
    board = PageCache(DEFAULT, node="n")
    board.publish(view)
    lines = board.page(("native",)).splitlines()
    samples = [line for line in lines if not line.startswith(b"#")]
    assert 1000 < len(samples) <= MOST_SAMPLES


def test_groups_patterns_and_denials():
    view = full_view(2)
    activity = "gpuwatch_gpu_sm_active_ratio"
    errors = page(view, choosing(groups=("errors",), allow=("gpuwatch_gpu_sm_*",), deny=("*_xid_*",)))
    assert {"gpuwatch_gpu_ecc_errors_total", activity, "gpuwatch_gpu_sm_occupancy_ratio"} <= errors.keys()
    assert not [name for name in errors if "_xid_" in name or "power" in name or "nvlink" in name]
    assert page(view, choosing(groups=())) == {}
    assert page(view, choosing(groups=(), allow=(activity,), deny=(activity,))) == {}
    assert "gpuwatch_rightsizing_workloads" in page(view, DEFAULT)
    assert "gpuwatch_rightsizing_workloads" not in page(view, choosing(deny=("gpuwatch_rightsizing_*",)))
    assert "gpuwatch_process_info" in page(view, MetricsConfig(processes=True))


def test_a_denial_holds_for_the_names_of_dcgm_too():
    board = PageCache(choosing(groups=(), deny=("DCGM_FI_PROF_*",)), node="n")
    board.publish(full_view(2))
    shown = board.page(PROFILES).decode()
    assert "DCGM_FI_DEV_GPU_TEMP{" in shown
    assert "DCGM_FI_PROF_" not in shown


def test_a_scrape_gets_what_it_names_even_of_a_group_that_is_off():
    view, links = full_view(2), select(("gpuwatch_gpu_nvlink_*",), page_families())
    assert page(view, DEFAULT, links).keys() == links
    assert page(view, choosing(deny=("*_nvlink_errors_*",)), links).keys() == links - {
        "gpuwatch_gpu_nvlink_errors_total"
    }


def test_a_scrape_never_gets_processes_that_are_off():
    names = select(("gpuwatch_process_*",), page_families())
    assert page(full_view(2), DEFAULT, names) == {}
    assert page(full_view(2), MetricsConfig(processes=True), names).keys() == names


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("gpuwatch_gpu_power_wats", "did you mean gpuwatch_gpu_power_watts?"),
        ("x*", "no family fits x*"),
        ("", "is no name"),
        ("gpuwatch_[a-z]*", "is no name"),
        ("gpuwatch_\x1b[31m", "is no name"),
        ("*" * (MAX_LENGTH + 1), "is no name"),
    ],
)
def test_a_pattern_that_fits_nothing_is_refused(pattern: str, why: str):
    with pytest.raises(ValueError, match=re.escape(why)) as error:
        select((pattern,), page_families())
    assert "\x1b" not in str(error.value)
    key, reason = wrong_pattern(choosing(deny=("gpuwatch_gpu_*", pattern)), page_families()) or ("", "")
    assert key == "metrics.families.deny[1]"
    assert why in reason


def test_a_request_for_too_much_is_refused_without_a_guess():
    """A guess costs 50 ms on the thread that answers all clients."""
    with pytest.raises(ValueError, match="no family fits gpuwatch_gpu_power_wats") as error:
        requested({"name[]": ("gpuwatch_gpu_power_wats",)}, page_families())
    assert "did you mean" not in str(error.value)
    with pytest.raises(ValueError, match="more than"):
        requested({"name[]": tuple(f"gpuwatch_{number}*" for number in range(100))}, page_families())


def test_selections_are_remembered_up_to_a_bound():
    board = PageCache(DEFAULT, node="n")
    board.publish(full_view(1))
    names = sorted(page_families())[: 3 * MAX_SELECTIONS]
    shown = [board.page(("native",), only=frozenset((name,))) for name in names]
    assert len(board._schedules) == MAX_SELECTIONS
    assert len(board._newest.pages) == MAX_SELECTIONS
    assert shown == [board.page(("native",), only=frozenset((name,))) for name in names]


def linked(*links: NvLink) -> View:
    gpu = Gpu(identity=identity(0), nvlinks=links)
    status = GpuStatus(identity=gpu.identity, state=GpuState.FRESH)
    snapshot = Snapshot(at=AT, interval=2.0, gpus=(gpu,), statuses=(status,))
    return View(snapshot=snapshot, agent=AgentStatus(version="1", started=AT))


def sums(shown: Iterator[View]) -> list[float | None]:
    """The bytes that the GPU's links have sent, View by View."""
    counters, found = NvlinkCounters(), list[float | None]()
    for view in shown:
        counters.observe(view)
        families = {family.name: family for family in collect(view, DEFAULT, counters=counters)}
        samples = families["gpuwatch_gpu_nvlinks_transmit_bytes_total"].samples
        found.append(samples[0][1] if samples else None)
    return found


def test_a_link_that_goes_down_leaves_the_sum_where_it_was():
    up, down = NvLink(link=0, active=True, transmit_bytes=100), NvLink(link=1, active=False)
    before, after = replace(down, active=True, transmit_bytes=900), replace(up, transmit_bytes=150)
    silent = (replace(up, transmit_bytes=None), down)
    assert sums(iter((linked(up, before), linked(after, down), linked(*silent), linked(after, before)))) == [
        1000,
        1050,
        None,
        1050,
    ]


def test_the_sum_does_not_fall_in_a_view_that_is_shown_after_a_newer_one_was_taken():
    up, down = NvLink(link=0, active=True, transmit_bytes=100), NvLink(link=1, active=False)
    counters, late = NvlinkCounters(), linked(up, down)
    for view in (linked(up, replace(down, active=True, transmit_bytes=900)), late, linked()):
        counters.observe(view)
    assert counters.totals(late.snapshot.gpus[0])["transmit_bytes"] == 1000


def test_counters_that_start_again_forget_what_was():
    up, down = NvLink(link=0, active=True, transmit_bytes=100), NvLink(link=1, active=False)
    before, reset = replace(down, active=True, transmit_bytes=900), replace(up, transmit_bytes=5)
    assert sums(iter((linked(up, before), linked(reset, down)))) == [1000, 5]


def test_links_are_counted_by_state_and_a_gpu_without_any_has_no_series():
    links = [NvLink(link=number, active=active) for number, active in enumerate((True, True, False, None))]
    states = page(linked(*links), DEFAULT)["gpuwatch_gpu_nvlinks"].samples
    assert {own[0]: count for (_, own), count in states} == {"up": 2, "down": 1}
    assert not [name for name in page(linked(), DEFAULT) if "nvlink" in name]
