"""The dashboard Workload without Kubernetes: a Slurm node and a Docker host, with the rules, answer its queries."""

import json
from collections import defaultdict

import pytest

from tests import fast_yaml
from tests.dashboards.boards import all_targets
from tests.e2e.processes import agent, job, prometheus
from tests.promql import RULES, filled
from tests.waiting import until

HOSTS = {"slurm-1": "sim:a100", "docker-1": "sim:docker"}
HELD = {
    ("slurm", "4711"): 4,
    ("slurm", "4712"): 1,
    ("container", "lab-train-1"): 2,
    ("container", "chat"): 1,
    ("container", "jupyter-anna"): 0.5,
}
"""Those of known names, and their GPUs: Jupyter shares one with a container that Docker does not know."""
ACCOUNTS = {("slurm", "physics"): 4, ("slurm", "chemistry"): 1, ("container", "lab"): 2}

SHORT = "two minutes are played; recommendations take a day"
EMPTY = {
    "What could be released: right-sizing / GPUs to free A": SHORT,
    "What could be released: right-sizing / Cost of these a day A": SHORT,
    "What could be released: right-sizing / GPU-hours a day that could be freed, by finding A": SHORT,
    "What could be released: right-sizing / Recommendations A": SHORT,
    "What could be released: right-sizing / Recommendations B": SHORT,
    "What could be released: right-sizing / Still being learned A": SHORT,
    "Is it used? / Tensor cores of the 20 least used A": "neither A100 nor L40S tells",
    "Is it used? / Power, the 20 highest B": "there are fewer",
    "By their own processes / Power put down to pods, the 20 highest A": "there are no pods",
    "What hit it / Findings on its GPUs A": "nothing is wrong",
    "What hit it / XIDs on its GPUs A": "nothing is wrong",
}
"""Queries that rightly return nothing here, and why; besides those about the tuner, which does not run."""
TUNING = "What does tuning save, and cost?"
VARIABLES = ("cluster", "node", "gpu", "kind", "namespace", "workload")
TARGETS = [target for target in all_targets() if target.panel.board == "workload"]


@pytest.fixture(scope="module")
def database(tmp_path_factory):
    """A Prometheus with all rules that has scraped both hosts."""
    place, config = tmp_path_factory.mktemp("bare"), {"agent": {"interval": 0.5}}
    rules = fast_yaml.load(RULES.read_text())
    for group in rules["groups"]:
        group.pop("interval", None)
    file = place / "rules.json"
    file.write_text(json.dumps(rules))
    with (
        agent(place / "slurm", source=("--source", HOSTS["slurm-1"]), config=config) as slurm,
        agent(place / "docker", source=("--source", HOSTS["docker-1"]), config=config) as docker,
    ):
        jobs = [job(name, found.settle()) for name, found in (("slurm-1", slurm), ("docker-1", docker))]
        for each in jobs:
            each["static_configs"][0]["labels"] = {"node": each["job_name"]}
        with prometheus(place / "prometheus", jobs, rule_files=[str(file)]) as found:
            until(lambda: found.value("count(workload:gpuwatch_gpu_activity:avg5m)") == 12, "every place has activity")
            compared = 'count(gpu:gpuwatch_gpu_pace:peer_ratio{reading="sm_clock"})'
            until(lambda: found.value(compared) == 6, "the GPUs of a job and of a container are compared")
            until(lambda: ask(found, query("Energy")), "energy is counted")
            # a subquery looks at whole seconds: a record of the last half second is not in it yet
            until(lambda: ask(found, query("Mean activity")), "activity is there for a whole second")
            yield found


def ask(database, expression, **chosen):
    """As Grafana does, of the last minute instead of hours."""
    spans = dict.fromkeys(("__range", "__rate_interval"), "1m")
    known = {**dict.fromkeys(VARIABLES, ".*"), "price": "2", "1": "$1", **spans, **chosen}
    return database.query(filled(expression.replace(":5m]", ":1s]"), known))


def query(title, ref="A"):
    (found,) = (each.expr for each in TARGETS if (each.panel.title, each.json["refId"]) == (title, ref))
    return found


@pytest.mark.parametrize("target", TARGETS, ids=str)
def test_each_query_has_series(database, target):
    name = f"{target.panel.row} / {target.panel.title} {target.json['refId']}"
    if target.panel.row == TUNING or name in EMPTY:
        assert ask(database, target.expr) == []
    else:
        assert ask(database, target.expr), target.expr


def test_a_kind_is_chosen_and_the_table_names_its_workloads(database):
    for kind in ("slurm", "container", "user"):
        rows = [row["metric"] for row in ask(database, query("Workloads"), kind=kind)]
        assert {row["kind"] for row in rows} == {kind}
        assert {row["name"] for row in rows} >= {name for of, name in HELD if of == kind}
    assert ask(database, query("Workloads"), kind="pod") == []


def test_gpus_held_are_those_of_the_scenario(database):
    rows = ask(database, query("Workloads"))
    held = {(row["metric"]["kind"], row["metric"]["name"]): float(row["value"][1]) for row in rows}
    assert held.items() >= HELD.items()
    assert sum(held.values()) == 11


def test_a_job_is_compared_with_itself_and_so_is_a_container(database):
    compared = defaultdict(set)
    for row in ask(database, query("SM clock beside the peers")):
        compared[row["metric"]["kind"], row["metric"]["name"]].add(row["metric"]["gpu"])
    assert dict(compared) == {("slurm", "4711"): {"0", "1", "2", "3"}, ("container", "lab-train-1"): {"0", "1"}}


def test_who_shares_a_gpu_is_judged_by_its_own_processes(database):
    shared = '{node="docker-1", gpu="3"}'
    assert len(database.query(f"workload:gpuwatch_gpu_activity:avg5m{shared}")) == 2
    rows = database.query(f"workload:gpuwatch_gpu_memory_used:ratio{shared}")
    filled = {row["metric"]["name"]: float(row["value"][1]) for row in rows}
    assert filled.pop("jupyter-anna") > 1.5 * filled.popitem()[1] > 0


def test_the_bill_goes_by_account_and_compose_project(database):
    rows = database.query("sum by (kind, account) (owner:gpuwatch_gpus_held:sum)")
    held = {(row["metric"]["kind"], row["metric"].get("account")): float(row["value"][1]) for row in rows}
    assert held.items() >= ACCOUNTS.items()
    assert sum(held.values()) == 11
