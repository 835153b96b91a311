"""GPU-hours lost by node scope and by GPU scope on the same faults: real remediators, one API server, jumped days."""

import json
from pathlib import Path

import pytest

from gpuwatch.cli.main import cli
from gpuwatch.cli.sim.fleet import remediator
from gpuwatch.model.errors import UsageError
from gpuwatch.sim.fleet.scopes import TracedFault, compare, imagined, read_trace
from tests.cli.commands import runner

DAY = 86400.0
HEADER = "node,start_days,end_days,level,class,description\n"
FAULTS = (
    TracedFault("a", 0.0, 2 * DAY, "GPU"),
    TracedFault("b", DAY, 1.5 * DAY, "GPU"),
    TracedFault("a", DAY, 3 * DAY, "GPU"),  # begins during the first one
    TracedFault("c", 0.0, DAY, "Fan"),
)


def test_gpu_scope_leaves_seven_of_eight_gpus_in_service_and_holds_no_healthy_node() -> None:
    report = compare(remediator, FAULTS, nodes=4, budget=2)
    assert report.is_good, (report.violations, report.shortfalls)
    gpu, fan = report.costs
    assert gpu.node_scope == pytest.approx(3.5 * 24 * 8, rel=0.01)
    assert gpu.gpu_scope == pytest.approx(3.5 * 24, rel=0.02)
    assert gpu.released > 0.87
    assert (fan.kind, fan.node_scope, fan.gpu_scope) == ("Fan", 192.0, 192.0)


@pytest.mark.slow  # tests/harms shows each rule with failing requests; beside it, the test above without them
def test_it_holds_with_half_of_the_api_calls_failing() -> None:
    seed = 6  # a node whose condition is not yet True when its days are jumped over
    report = compare(remediator, imagined(40, seed), nodes=40, api_failures=0.5, seed=seed)
    assert report.is_good, (report.violations, report.shortfalls)
    assert report.costs[0].released > 0.75


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("node,start\n1,2\n", "no column start_days"),
        (HEADER, "has no fault"),
        (f"{HEADER}1,5,4,x,GPU,y\n", "line 2"),
        (f"{HEADER}1,0,nan,x,GPU,y\n", "line 2"),
        (f"{HEADER}1,0,1,x,GPU,y\n1,zero\n", "line 3"),
    ],
)
def test_a_trace_that_is_none_is_refused(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=why):
        read_trace(path)


def test_the_command_prints_the_cost_of_each_class(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(f"{HEADER}7,0,1,Hardware,Fan,stuck\n")
    told = runner().invoke(cli, ["sim", "fleet", "--trace", str(path), "--nodes", "1", "-o", "json"])
    assert told.exit_code == 0, told.stderr
    assert json.loads(told.stdout)["items"][0]["gpu_scope"] == 192.0
    told = runner().invoke(cli, ["sim", "fleet", "--trace", str(tmp_path / "none")])
    assert (told.exit_code, "--trace" in told.stderr) == (2, True)
