"""A real Prometheus in agent mode runs the example: what it sends to another one is what alerts and dashboards read."""

import contextlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.cli.metrics.check import NEEDED
from gpuwatch.rightsizing.prometheus.queries import NATIVE, filled
from tests import fast_yaml
from tests.dashboards.boards import all_annotations, all_targets, all_variables, label_values
from tests.e2e.processes import ROOT, agent, prometheus, running, series
from tests.ports import free_port
from tests.promql import PROCESS, PROMETHEUS, families, metrics, rule_groups
from tests.waiting import until

EXAMPLES = ROOT / "deploy/prometheus"
EXAMPLE = fast_yaml.load((EXAMPLES / "remote-write.example.yaml").read_text())
(REMOTE,) = EXAMPLE["remote_write"]
DOCUMENT = ROOT / "docs/collectors.md"
DROPPED = [rule["regex"] for rule in REMOTE["write_relabel_configs"]]
MACHINE = "gpu-1.example.com"
SCRAPED = {"up", *(name for name in PROMETHEUS if name.startswith("scrape_"))}
slow = pytest.mark.slow  # three processes; quick: test_what_is_read_is_sent_and_the_rest_is_not, promtool
MADE = {*families(), *PROCESS, *SCRAPED, "python_info"}
"""Names of all series that a scrape of a process of gpuwatch gives."""


FOR_JOINS = {"gpuwatch_pod_labels", "gpuwatch_pod_labels_omitted", "gpuwatch_node_labels"}
"""There only where an operator asks for them, to read them in queries of their own."""


def is_sent(name: str) -> bool:
    return not any(re.fullmatch(regex, name) for regex in DROPPED)


def read() -> set[str]:
    """Names of all series that rules, dashboards and `gpuwatch recommend --from-prometheus` read."""
    texts = [rule["expr"] for group in rule_groups() for rule in group["rules"]]
    texts += [target.expr for target in all_targets()]
    texts += [annotation["expr"] for _, annotation in all_annotations() if "expr" in annotation]
    texts += [label_values(variable)[0] for _, variable in all_variables() if variable["type"] == "query"]
    texts += [filled(query, 60) for query in NATIVE.queries.values()]
    found = set(NEEDED).union(*(metrics(text) for text in texts))
    for group in rule_groups():
        for rule in group["rules"]:
            found |= {
                name for text in rule.get("annotations", {}).values() for name in re.findall(r"gpuwatch_\w+", text)
            }
    return found & MADE


def test_what_is_read_is_sent_and_the_rest_is_not():
    assert {name for name in MADE if is_sent(name)} == read() | FOR_JOINS


def test_the_rules_drop_and_nothing_else():
    for rule in REMOTE["write_relabel_configs"]:
        assert {key: value for key, value in rule.items() if key != "regex"} == {
            "source_labels": ["__name__"],
            "action": "drop",
        }


def test_it_scrapes_as_the_example_for_machines_does():
    """So that who changes one of them changes the other."""
    scrapes = fast_yaml.load((EXAMPLES / "scrape.example.yaml").read_text())["scrape_configs"]
    assert EXAMPLE["scrape_configs"] == scrapes


def test_promtool_takes_it_for_agent_mode():
    command = ["promtool", "check", "config", "--agent", EXAMPLES / "remote-write.example.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def arrived(tmp_path_factory):
    """(agent, receiving Prometheus) with a machine scraped as the example says it."""
    place = tmp_path_factory.mktemp("remote-write")
    with (
        agent(place / "agent", source=("--source", "sim:idle-allocated")) as node,
        prometheus(place / "receiver", [], ["--web.enable-remote-write-receiver"]) as receiver,
    ):
        node.settle()
        jobs = EXAMPLE["scrape_configs"][:1]
        jobs[0]["static_configs"] = [{"targets": [MACHINE]}]
        jobs[0]["relabel_configs"][-1]["replacement"] = node.url.removeprefix("http://")
        remote = {**REMOTE, "url": f"{receiver.url}/api/v1/write"}
        config = {**EXAMPLE, "scrape_configs": [{**jobs[0], "scrape_interval": "1s"}], "remote_write": [remote]}
        with in_agent_mode(place / "sender", config):
            until(lambda: receiver.query('gpuwatch_gpu_workload_info{pod!=""}'), "a pod's series has arrived")
            yield node, receiver


def in_agent_mode(place: Path, config: dict[str, Any]) -> contextlib.AbstractContextManager[object]:
    place.mkdir()
    file = place / "prometheus.yaml"
    file.write_text(json.dumps(config))
    command = ["prometheus", "--enable-feature=agent", f"--config.file={file}", "--log.level=warn"]
    command += [f"--storage.agent.path={place / 'data'}", f"--web.listen-address=127.0.0.1:{free_port()}"]
    return running(command, place / "prometheus.log")


@slow
def test_every_series_that_is_sent_arrives_with_its_labels(arrived):
    node, receiver = arrived
    target = frozenset({"cluster": "gpu-east", "job": "gpuwatch", "node": MACHINE, "instance": MACHINE}.items())

    def is_same():
        served = {each for each in series(node.page()) if is_sent(each.name)}
        found = [dict(row["metric"]) for row in receiver.query('{job="gpuwatch"}')]
        there = {(row.pop("__name__"), frozenset(row.items())) for row in found}
        return {(name, labels | target) for name, labels in served} == {row for row in there if row[0] not in SCRAPED}

    until(is_same, "the same series")
    assert receiver.value('up{job="gpuwatch"}') == 1


@slow
def test_the_documents_say_what_it_saves(arrived):
    """Of the agent's page with its default families, and with each NVLink's."""
    node, _ = arrived
    said = re.search(r"reads: (\d+)% of a node with eight\s+H100s, (\d+)%\s+with the", DOCUMENT.read_text())
    assert said
    for percent, query in zip(said.groups(), ("", "?name[]=gpuwatch_*"), strict=True):
        names = [each.name for each in series(node.page(query))]
        assert abs(100 * (1 - sum(map(is_sent, names)) / len(names)) - int(percent)) < 1.5
