"""The pack on DCGM's names fires when it should, is silent beside the native families, and knows every XID.

The rules of public packs are evaluated too, on pages that the simulator gives under profile dcgm-4.8.
"""

import subprocess
from functools import cache

import pytest
import yaml

from gpuwatch.config import Config
from gpuwatch.health.xid.classify import classify
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.page_cache import Profiles
from gpuwatch.model.xid import XidEvent
from gpuwatch.model.xid_catalogue import all_xids
from gpuwatch.sim.node.scenario import load, parse
from gpuwatch.sim.playback import views
from tests.alerts.dcgm_cases import ABSENT, CASES, NATIVE, PUBLIC, RESTART
from tests.alerts.timeline import Case, ask, check, group, values_text
from tests.e2e.processes import Series, series
from tests.promql import ROOT, alerts, grouping, metrics, selectors
from tests.seeds import a_third

PACK = ROOT / "alerts" / "dcgm.rules.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks"
PAGE = ROOT / "tests" / "golden" / "dcgm-4.8.metrics"
ALERTS = alerts(PACK)
NVLINK_ERRORS = '{__name__=~"DCGM_FI_DEV_NVLINK_(CRC_FLIT|CRC_DATA|REPLAY|RECOVERY)_ERROR_COUNT_TOTAL"}'
TARGET = {"cluster", "node", "instance"}
LONGEST = 8
"""Minutes that a scenario is played."""
GPUS = [{"name": "ml/train-0", "container": "main", "gpus": [0], "load": "training"}]
OWN = {
    "worn-memory": [
        {"at": "70s", "do": "remap", "gpu": 0, "cause": "corrected", "every": "20s", "times": 10},
    ],
    "replays": [{"at": "70s", "do": "pcie", "gpu": 0, "replays": 40, "every": "20s", "times": 12}],
}
"""What no scenario of the product has."""


def of(name: str) -> list[Case]:
    return [case for case in CASES if case.alert == name]


def beside_native(case: Case) -> Case:
    """The same fault of a GPU that the native families tell of as well, from an agent that is restarted meanwhile."""
    native = {NATIVE: lambda minute: None if RESTART <= minute < RESTART + 3 else 1}
    return case._replace(series={**case.series, **native}, lasts=max(case.lasts or 0, RESTART), fires=False)


@pytest.mark.parametrize("name", a_third(ALERTS))
def test_an_alert_fires_without_native_families_only(name, tmp_path):
    cases = [*of(name), *(beside_native(case) for case in of(name) if name != ABSENT)]
    assert any(case.fires for case in of(name))
    assert any(not case.fires for case in of(name))
    assert check(PACK, [name], [group(PACK, case) for case in cases], tmp_path) == ""


def test_promtool_accepts_the_pack():
    done = subprocess.run(["promtool", "check", "rules", str(PACK)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_says_what_to_do(name):
    said = ALERTS[name]["annotations"]
    assert "First: " in said["description"]
    assert "{{" not in said["summary"]
    assert said["summary"].endswith(".")
    assert (RUNBOOKS / said["runbook_url"].rsplit("/", 1)[1]).exists()


@pytest.mark.parametrize("name", ALERTS)
def test_an_expression_reads_what_the_profile_gives(name):
    page = series(PAGE.read_bytes())
    names, labels = {row.name for row in page}, {label for row in page for label, _ in row.labels}
    for selector in selectors(
        ALERTS[name]["expr"].replace(NVLINK_ERRORS, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL")
    ):
        if ":" not in selector.name:
            assert selector.name in names
            assert {label for label, _, _ in selector.matchers} <= labels
    assert grouping(ALERTS[name]["expr"]) <= labels | TARGET


def test_every_xid_is_in_the_alert_of_its_class():
    """A code whose meaning the kernel's line decides is not told apart by DCGM's names: it is one of the others."""
    kinds = {"DcgmXidCritical": "fatal", "DcgmXidContained": "contained", "DcgmXidApplication": "application"}
    for name, kind in kinds.items():
        codes = {
            str(info.code)
            for info in all_xids()
            if info.decided_by is None and classify(XidEvent(at=0, xid=info.code, source="kernel"), {}) == kind
        }
        assert named(name, "=~") == codes
    assert named("DcgmXidOther", "!~") == set().union(*(named(name, "=~") for name in kinds))


def named(name: str, op: str) -> set[str]:
    return {
        code
        for selector in selectors(ALERTS[name]["expr"])
        for label, operator, value in selector.matchers
        if (label, operator) == ("xid", op)
        for code in value.split("|")
    }


@cache
def pages(name: str) -> tuple[dict[Series, float], ...]:
    """The page of profile dcgm-4.8 at every full minute of a scenario."""
    if name in OWN:
        document = {"node": {"model": "h100", "gpus": 2}, "workloads": GPUS, "timeline": OWN[name]}
        scenario = parse({"description": name, **document}, name)
    else:
        scenario = load("healthy" if name == "gone" else name)
    config = Config()
    profiles, found = Profiles(config.metrics, node="n1"), []
    for view in views(scenario, config, 0.0, 60.0 * LONGEST, short_step=10.0):
        profiles.observe(view, view.snapshot.at)
        if view.snapshot.at % 60 == 0:
            found.append(series(Encoder().encode(profiles.collect(view, ["dcgm-4.8"]))))
    return tuple({} if name == "gone" and minute else page for minute, page in enumerate(found))


def answers(expression: str, scenario: str, minute: int, place) -> bool:
    """Whether the expression has an answer in that minute."""
    played = pages(scenario)
    rows = {row: None for page in played for row in page if row.name in metrics(expression)}
    inputs = [
        {"series": f"{row.name}{{{labels(row)}}}", "values": values_text(page.get(row) for page in played)}
        for row in rows
    ]
    question = {"expr": f"vector(1) and on () ({expression})", "eval_time": f"{minute}m"}
    asked = {**question, "exp_samples": [{"labels": "{}", "value": 1}]}
    tests = {"rule_files": [], "evaluation_interval": "1m"}
    said = ask({**tests, "tests": [{"interval": "1m", "input_series": inputs, "promql_expr_test": [asked]}]}, place)
    assert said == "" or "got: nil" in said, said
    return said == ""


def labels(row: Series) -> str:
    return ",".join(
        f"{label}={yaml.safe_dump(value, default_style=chr(34), width=1 << 20).strip()}" for label, value in row.labels
    )


@pytest.mark.parametrize("public", a_third(PUBLIC), ids=lambda public: public.expression)
def test_a_public_rule_works_on_the_profile(public, tmp_path):
    assert answers(public.expression, public.scenario, public.minute, tmp_path) == (not public.dead)


@pytest.mark.parametrize("public", a_third(PUBLIC), ids=lambda public: public.expression)
def test_a_public_rule_is_silent_on_a_healthy_node(public, tmp_path):
    assert answers(public.expression, "healthy", public.minute, tmp_path) == bool(public.always)
