"""`sim fleet` on the command line: the report for people and for scripts, and the exit code."""

import json

from gpuwatch.cli.sim import fleet
from gpuwatch.sim.fleet.agent import FAULTS
from tests.cli.commands import run

SMALL = ("sim", "fleet", "--nodes", "10", "--duration", "60")


def test_the_faults_offered_are_those_there_are():
    assert list(fleet.FAULTS) == list(FAULTS)


def test_people_get_the_phases_and_a_verdict():
    ran = run(*SMALL)
    assert ran.exit_code == 0, ran.output
    assert [line.split()[0] for line in ran.stdout.splitlines()[1:7]] == [
        "start",
        "rest",
        "fault",
        "waiting",
        "repair",
        "after",
    ]
    assert "every invariant held" in ran.stdout
    assert "1/1" in ran.stdout


def test_scripts_get_every_figure():
    ran = run(*SMALL, "--fault", "app-xids", "-o", "json")
    document = json.loads(ran.stdout)
    assert (document["kind"], document["report"]["good"], document["report"]["quarantines"]) == ("FleetReport", True, 0)
    assert document["report"]["violations"] == document["report"]["leaks"] == []
    assert {item["name"] for item in document["items"]} == {"start", "rest", "fault", "waiting", "repair", "after"}


def test_a_budget_that_makes_no_sense_is_refused():
    ran = run("sim", "fleet", "--budget", "plenty")
    assert ran.exit_code == 2
    assert "max_unavailable" in ran.stderr


def test_a_violated_invariant_ends_it_with_code_4(monkeypatch):
    """The one thing replaced is the remediator, as a defect would."""
    from gpuwatch.config import BudgetConfig

    right = fleet.remediator
    wrong = BudgetConfig(max_unavailable=10)
    monkeypatch.setattr(
        fleet,
        "remediator",
        lambda context: right(context._replace(config=type(context.config)(mode="enforce", budget=wrong))),
    )
    ran = run(*SMALL)
    assert ran.exit_code == 4
    assert "violated: budget" in ran.stdout
    assert "taint none -> " in ran.stdout
