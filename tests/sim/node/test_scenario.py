"""Scenarios: those that come with gpuwatch run, and a wrong one says what is wrong with it."""

import pytest

from gpuwatch.collect.kernel_log.lines import read_message
from gpuwatch.model.errors import UsageError
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.scenario import load, names, parse, parse_action, scenarios, seconds

WANTED = {
    "healthy", "fallen-off-bus", "ecc-storm", "row-remap", "thermal", "power-brake", "nvlink-down", "gsp-timeout",
    "driver-hang", "driver-reload", "mig", "time-sliced", "idle-allocated", "app-xid", "noisy-xid", "tuning",
    "rightsizing", "forged-xid",
}  # fmt: skip


def test_every_promised_scenario_is_there_with_a_description():
    found = dict(scenarios())
    assert found.keys() >= WANTED
    assert next(iter(found)) == "healthy"
    assert all(len(description) > 20 for description in found.values())


@pytest.mark.parametrize("name", names())
def test_a_scenario_runs_and_its_kernel_lines_are_the_drivers(name):
    node = SimNode(load(name), physical=False)
    placed = [process for gpu in node.gpus for _, process in gpu.processes]
    assert placed, "a workload names a device that the node lacks"
    node.advance(1800)
    for line in node.lines:
        if line.text.startswith(("NVRM: Xid", "NVRM: GPU at", "nvidia-nvswitch")) and not line.facility:
            assert read_message(line.text).kind != "other", line.text


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"node": {"modle": "h100"}}, ["node.modle", "did you mean node.model"]),
        ({"node": {"model": "h1000"}}, ["h1000", "h100"]),
        ({"timeline": [{"do": "xid", "gpu": 0, "xid": 1, "att": 3}]}, ["timeline[0].att", "timeline[0].at"]),
        ({"timeline": [{"do": "explode"}]}, ["explode", "timeline[0].do"]),
        ({"timeline": [{"do": "xid", "gpu": 0, "xid": 1, "at": "soon"}]}, ["timeline[0].at", "soon", "90s"]),
        ({"timeline": [{"do": "xid", "gpu": 9, "xid": 1}]}, ["no GPU 9", "8"]),
        ({"timeline": [{"do": "xid", "gpu": 0}]}, ["xid"]),
        ({"workloads": [{"name": "a/b", "laod": "idle"}]}, ["workloads[0].laod", "workloads[0].load"]),
        ({"workloads": [{"name": "a/b", "load": "lazy"}]}, ["lazy", "idle"]),
        ({"node": {"mig": {0: ["9g.9gb"]}}}, ["9g.9gb", "1g.10gb"]),
        ({"workloads": [{"name": "a/b", "cgroup": "v9"}]}, ["v9", "docker"]),
        ({"timeline": [7]}, ["timeline[0]", "mapping"]),
    ],
)
def test_a_wrong_scenario_names_the_place_and_the_way_out(document, words):
    with pytest.raises(UsageError) as caught:
        parse({"description": "x", **document}, "scenario test")
    assert all(word in str(caught.value) for word in words), caught.value


def test_an_unknown_scenario_names_the_nearest():
    with pytest.raises(UsageError, match="did you mean thermal"):
        load("termal")


def test_a_scenario_comes_from_a_file_too(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("description: mine\nnode: {model: t4, gpus: 1}\n")
    assert load(path).node.model == load(str(path)).node.model == "t4"
    path.write_text("description: [")
    with pytest.raises(UsageError, match="line 2; while parsing"):
        load(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90),
        ("1h30m", 5400),
        ("2m", 120),
        ("8d", 691200),
        ("1d12h", 129600),
        ("1.5", None),
        (7, 7),
        (0.5, 0.5),
        ("", None),
        ("5x", None),
        (True, None),
    ],
)
def test_durations(text, expected):
    assert seconds(text) == expected


def test_an_injected_action_is_checked_against_the_node():
    node = load("healthy").node
    assert parse_action({"do": "lose", "gpu": 3}, node).gpu == 3
    with pytest.raises(UsageError, match="no GPU 8"):
        parse_action({"do": "lose", "gpu": 8}, node)
    with pytest.raises(UsageError, match="unknown load"):
        parse_action({"do": "start", "workload": {"name": "a/b", "load": "hard"}}, node)
