"""Two diagnoses beside each other: what is a difference, what is none, and what is said of files that are neither."""

import json

import msgspec
import pytest

from gpuwatch.diagnose.baseline.comparison import compare, document, inventory, read_document
from gpuwatch.model.errors import UsageError
from tests.diagnose.hosts import Host


def row(id_="H01", result="pass", message="8 GPUs", **more):
    return {"id": id_, "stage": "host", "title": "GPUs are on the bus", "result": result, "message": message} | more


def made(*items, **more):
    whole = {
        "apiVersion": "gpuwatch/v1",
        "kind": "Diagnosis",
        "node": "n1",
        "items": list(items),
        "inventory": {},
    } | more
    return document(json.dumps(whole), "test")


def differences(here, there):
    return [(d.of, d.name, d.here, d.there) for d in compare(here, there)]


def test_a_node_is_as_itself():
    one = made(row(), row("G01", "fail", "ECC"), inventory={"driver": "570"})
    assert compare(one, one) == ()


def test_results_and_what_the_nodes_are_made_of_differ():
    here = made(row(), row("G01", "fail", "2 errors"), inventory={"driver": "570", "gpu.0.vbios": "96"})
    there = made(row(), row("G01", "pass", ""), inventory={"driver": "580", "kernel": "6.8"})
    assert differences(here, there) == [
        ("check", "G01", "fail: 2 errors", "pass"),
        ("inventory", "driver", "570", "580"),
        ("inventory", "gpu.0.vbios", "96", None),
        ("inventory", "kernel", None, "6.8"),
    ]


def test_the_words_of_a_pass_are_no_difference_and_those_of_a_failure_are():
    assert compare(made(row(message="45 degrees")), made(row(message="47 degrees"))) == ()
    assert len(compare(made(row(result="fail", message="GPU 1")), made(row(result="fail", message="GPU 2")))) == 1


def test_a_check_that_waits_for_another_differs_only_by_which():
    def blocked(by, message):
        return made(row("N01", "skip", message, blocked_by=by))

    assert compare(blocked("D01", "blocked by D01: x"), blocked("D01", "blocked by D01: y")) == ()
    assert len(compare(blocked("D01", ""), blocked("H01", ""))) == 1


def test_checks_that_only_one_was_asked_are_left_out():
    assert compare(made(row()), made(row(), row("X01", "fail", "wrong sum"))) == ()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "is not JSON"),
        (b"GPU 0 is fine", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1, 2]", "is no diagnosis"),
        (b"{}", "apiVersion is none"),
        (b'{"apiVersion": "v1", "kind": "Diagnosis"}', "apiVersion is v1"),
        (b'{"apiVersion": "gpuwatch/v1", "kind": "GpuList", "items": []}', "it is a GpuList"),
        (b'{"apiVersion": "gpuwatch/v1", "kind": "Diagnosis", "items": [{"id": 1}]}', "items[0]"),
    ],
)
def test_a_file_that_is_no_diagnosis_is_told_apart(tmp_path, body, words):
    file = tmp_path / "other.json"
    file.write_bytes(body)
    with pytest.raises(UsageError) as caught:
        read_document(file)
    assert words in str(caught.value)
    assert "other.json" in str(caught.value)
    assert "gpuwatch diagnose -o json" in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsageError, match=r"other\.json.*No such file"):
        read_document(tmp_path / "other.json")


def test_the_inventory_names_neither_the_node_nor_its_parts(tmp_path):
    host = Host(tmp_path)
    found = inventory(host.facts())
    everything = json.dumps(found)
    identities = [gpu.identity for gpu in host.view.snapshot.gpus]
    assert found["gpu.7.model"] == "NVIDIA H100 80GB HBM3"
    assert found["gpu.0.pcie"] == "gen5 x16"
    assert found["gpu.0.nvlinks"] == "18 active at 26.56 GB/s"
    assert [word for i in identities for word in (i.uuid, i.serial) if word in everything] == []
    assert all(type(key) is type(value) is str for key, value in found.items())


def test_the_inventory_holds_nothing_that_changes_by_itself(tmp_path):
    host = Host(tmp_path)
    before = inventory(host.facts())
    for index in range(8):
        host.gpu(
            index,
            temperature={"gpu": 80.0},
            power={"average": 600.0, "energy": 5e6},
            clocks={"sm": 1.0},
            memory={"used": 1 << 30, "free": 0},
            pcie={"generation": 1, "replays": 9},
            utilization={"gpu": 1.0},
            performance_state=0,
        )
    assert inventory(host.facts()) == before


def test_the_inventory_of_a_node_that_tells_nothing_is_empty():
    from gpuwatch.diagnose.facts import NodeFacts

    assert inventory(NodeFacts(at=1.0)) == {}


def test_a_document_with_unknown_members_is_read(tmp_path):
    assert msgspec.json.encode(made(row(), verdict="pass", first=None, later="?"))
