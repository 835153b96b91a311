"""What a person reads when an alert fires: the GPU, the pods that have it, and what to do first, all filled in."""

import re
from pathlib import Path

import pytest

from dashboards.history.fleet import NODES
from dashboards.history.tuning import Imagined
from gpuwatch.config import Config
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.native import collect
from gpuwatch.sim.node.scenario import load
from gpuwatch.sim.playback import views
from gpuwatch.tuning.service.metrics import TUNER_METRICS
from tests.alerts import cases, dcgm_cases
from tests.alerts.cases import OF_GPU, OF_NODE
from tests.alerts.timeline import Case, ask, description_of, values_text
from tests.e2e.processes import Series, series
from tests.promql import ROOT, RULES, alerts
from tests.seeds import a_third

PACK = ROOT / "alerts" / "dcgm.rules.yaml"
BESIDE = {
    f'gpuwatch_gpu_workload_info{{{OF_GPU},namespace="ml",pod="train-0",container="main"}}': (1, 1),
    f'gpuwatch_gpu_xid_last_timestamp_seconds{{{OF_GPU},xid="79"}}': (300, 300),
    f"gpuwatch_gpu_recovery_action{{{OF_GPU}}}": (2, 2),
    f'gpuwatch_nvswitch_sxid_errors_total{{{OF_NODE},switch="0",sxid="12028",severity="fatal"}}': (1, 1),
    f'gpuwatch_gpu_nvlinks{{{OF_GPU},state="down"}}': (1, 1),
}
BESIDE_DCGM = {dcgm_cases.dcgm("DCGM_FI_DEV_XID_ERRORS", ',namespace="ml",pod="train-0"'): (0, 0)}
LEFT = re.compile(r"\{\{|\}\}|<no value>|error expanding|%!")
WHOLE = (
    "GPU 3 (GPU-3) of n1 is gone: the driver has lost it. Whatever ran on it has failed. "
    "Newest XIDs: 79 at 1970-01-01 00:05:00 +0000 UTC. Pods that have it: ml/train-0. "
    "First: drain the node and reboot it. If it happens again, reseat or replace the GPU "
    "(`gpuwatch events --gpu GPU-3` has its past)."
)
MINUTES = 30


def firing(name: str, among: list[Case]) -> Case:
    return next(case for case in among if case.alert == name and case.fires)


@pytest.mark.parametrize("name", a_third(alerts()))
def test_a_description_is_filled_in(name, tmp_path):
    said = description_of(RULES, firing(name, cases.CASES), BESIDE, tmp_path)
    assert not LEFT.search(said), said
    assert ("c1" if name == "GpuwatchAbsent" else "n1") in said
    if alerts()[name]["labels"]["component"] == "gpu" and name != "GpuFaultWidespread":
        assert "ml/train-0" in said


@pytest.mark.parametrize("name", alerts(PACK))
def test_a_description_of_the_pack_is_filled_in(name, tmp_path):
    said = description_of(PACK, firing(name, dcgm_cases.CASES), BESIDE_DCGM, tmp_path)
    assert not LEFT.search(said), said
    if name != dcgm_cases.ABSENT:
        assert "NVIDIA H100" in said
        assert "ml/train-0" in said


def test_the_whole_of_one(tmp_path):
    assert description_of(RULES, firing("GpuFellOffBus", cases.CASES), BESIDE, tmp_path) == WHOLE


def test_a_gpu_that_nobody_has(tmp_path):
    said = description_of(RULES, firing("GpuFellOffBus", cases.CASES), {}, tmp_path)
    assert "Newest XIDs: none. Pods that have it: none known. First: " in said


@pytest.mark.slow  # the node with a tuner has all these series, too
def test_a_healthy_node_raises_nothing(tmp_path):
    """Every series of a simulated node that is well, minute by minute."""
    config = Config()
    played = [
        series(Encoder().encode(collect(view, config.metrics)))
        for view in views(load("healthy"), config, 0.0, 60.0 * MINUTES, short_step=60.0)
    ]
    assert any(row.name == "gpuwatch_gpu_clock_hertz" for page in played for row in page)
    assert raised({"gpuwatch": played}, tmp_path) == ""


@pytest.mark.parametrize("mode", [pytest.param("observe", marks=pytest.mark.slow), "enforce"])
def test_a_healthy_node_with_a_tuner_raises_nothing(mode, tmp_path):
    """And every series of its tuner, which has a power budget, and holds caps if it may: then it has more series."""
    config, tuner = Config(), Imagined(NODES[0]._replace(tuning=mode))
    seen = list(views(load("healthy"), config, 0.0, 60.0 * MINUTES, short_step=60.0, with_gpm=True))
    agent = [series(Encoder().encode(collect(view, config.metrics))) for view in seen]
    tuning = [series(Encoder().encode(row.family(state) for row in TUNER_METRICS)) for state in map(tuner.see, seen)]
    capped = any(row.name == "gpuwatch_tuner_clock_cap_hertz" for page in tuning for row in page)
    assert capped == (mode == "enforce")
    assert raised({"gpuwatch": agent, "gpuwatch-tuner": tuning}, tmp_path) == ""


def raised(jobs: dict[str, list[dict[Series, float]]], place: Path) -> str:
    """What promtool says if any alert fires while these pages are scraped; empty: none does."""
    inputs = [
        {"series": targeted(row, job), "values": values_text(page.get(row) for page in played)}
        for job, played in jobs.items()
        for row in {row for page in played for row in page}
    ]
    fired = 'count_over_time(ALERTS{alertstate="firing"}[1h])'
    question = {"expr": fired, "eval_time": f"{MINUTES}m", "exp_samples": []}
    tests = {"rule_files": [str(RULES)], "evaluation_interval": "1m"}
    played_once = {"interval": "1m", "input_series": inputs, "promql_expr_test": [question]}
    return ask({**tests, "tests": [played_once]}, place)


def targeted(row: Series, job: str) -> str:
    labels = [("job", job), ("node", "n1"), ("instance", "n1"), *row.labels]
    return row.name + "{" + ",".join(f'{label}="{value}"' for label, value in labels) + "}"
