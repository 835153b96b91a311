"""What `diagnose --compare` prints, and what it exits with."""

import json

import pytest

from gpuwatch.cli.console.session import Session
from gpuwatch.cli.diagnose.compare import DIFFERENT, SAME, compare, folded
from gpuwatch.diagnose.baseline.comparison import Difference, read_document
from gpuwatch.model.errors import UsageError


def diagnosis(node="n1", message="8 GPUs", result="pass", **inventory):
    check = {"id": "H01", "stage": "host", "title": "GPUs are on the bus", "result": result, "message": message}
    whole = {"apiVersion": "gpuwatch/v1", "kind": "Diagnosis", "node": node, "at": "2026-11-21T20:00:00Z"}
    return json.dumps(whole | {"items": [check], "inventory": inventory})


@pytest.fixture
def compared(tmp_path, capsys):
    def run(here, there, output="table"):
        file = tmp_path / "other.json"
        file.write_text(there)
        code = compare(Session(), read_document(file), here, output)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_two_nodes_that_are_the_same(compared):
    assert compared(diagnosis("n1"), diagnosis("n2")) == (SAME, "", "n1 is as n2 is.\n")


def test_a_node_and_its_past(compared):
    assert compared(diagnosis(), diagnosis()) == (SAME, "", "n1 is as it was.\n")
    assert compared(diagnosis(driver="570"), diagnosis(driver="580"))[1].split()[:3] == ["WHAT", "NOW", "THEN"]


def test_a_table_of_what_differs(compared):
    code, out, _ = compared(diagnosis(result="fail", message="7 of 8", driver="570"), diagnosis("n2", driver="580"))
    assert code == DIFFERENT
    assert [line.split() for line in out.splitlines()] == [
        ["WHAT", "N1", "N2"],
        ["H01", "fail:", "7", "of", "8", "pass:", "8", "GPUs"],
        ["driver", "570", "580"],
    ]
    _, wide, _ = compared(diagnosis(result="fail"), diagnosis("n2"), "wide")
    assert "GPUs are on the bus" in wide


def test_scripts_get_every_difference(compared):
    code, out, _ = compared(diagnosis(driver="570"), diagnosis("n2", kernel="6.8"), "json")
    document = json.loads(out)
    assert code == DIFFERENT
    assert (document["kind"], document["node"], document["other"]) == ("DiagnosisComparison", "n1", "n2")
    assert [(item["name"], item["here"], item["there"]) for item in document["items"]] == [
        ("driver", "570", None),
        ("kernel", None, "6.8"),
    ]
    assert compared(diagnosis(driver="570"), diagnosis("n2"), "name")[1] == "driver\n"
    assert "there: '6.8'" in compared(diagnosis(), diagnosis("n2", kernel="6.8"), "yaml")[1]


def test_another_file_is_refused(compared):
    with pytest.raises(UsageError, match="is not JSON"):
        compared(diagnosis(), "GPU 0")


def test_gpus_that_differ_alike_share_a_row():
    rows = [Difference(of="inventory", name=f"gpu.{n}.vbios", here="96", there="97") for n in (0, 1, 2, 5)]
    rows.append(Difference(of="inventory", name="gpu.6.vbios", here="95", there="97"))
    assert [row.name for row in folded(rows)] == ["gpu 0-2, 5 vbios", "gpu 6 vbios"]
