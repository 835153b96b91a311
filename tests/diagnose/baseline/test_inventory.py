"""What the inventory of a node holds, and what it leaves out."""

import json

from gpuwatch.diagnose.baseline.inventory import inventory
from gpuwatch.diagnose.facts import NodeFacts
from tests.diagnose.hosts import Host


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


def test_the_inventory_of_a_node_that_shows_nothing_is_empty():
    assert inventory(NodeFacts(at=1.0)) == {}
