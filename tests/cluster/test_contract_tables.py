"""Lists as tables: as kubectl asks for them, and as the remediator counts nodes, page by page."""

import json

import pytest

from gpuwatch.kube.errors import ApiCall
from gpuwatch.kube.reader import NodeReader
from gpuwatch.kube.transport import Transport
from tests.cluster.api import NODES

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
NODES_MADE = 3


@pytest.fixture
def transport(apiserver):
    made = Transport(str(apiserver.kubeconfig()))
    yield made
    made.close()


@pytest.fixture
def label(apiserver, names, name):
    for _ in range(NODES_MADE):
        node = {"metadata": {"name": next(names), "labels": {"of": name}}}
        assert apiserver.request("POST", NODES, node).status == 201
    return f"of={name}"


def listed(transport, label, **query):
    said = transport.request(ApiCall("list", "nodes"), NODES, query={"labelSelector": label, **query}, accept=TABLE)
    return json.loads(said)


def test_a_table_without_objects_has_a_row_for_each(transport, label):
    table = listed(transport, label, includeObject="None")
    assert (table["kind"], table["apiVersion"]) == ("Table", "meta.k8s.io/v1")
    assert [row["object"] for row in table["rows"]] == [None] * NODES_MADE
    assert table["columnDefinitions"][0]["name"] == "Name"
    assert all(len(row["cells"]) == len(table["columnDefinitions"]) for row in table["rows"])


def test_a_table_shows_metadata_or_objects_where_asked(transport, label):
    metadata = listed(transport, label)["rows"][0]
    whole = listed(transport, label, includeObject="Object")["rows"][0]
    assert metadata["object"]["kind"] == "PartialObjectMetadata"
    assert metadata["cells"][0] == metadata["object"]["metadata"]["name"]
    assert whole["object"]["kind"] == "Node"


def test_a_table_comes_in_pages(transport, label):
    first = listed(transport, label, limit=NODES_MADE - 1, includeObject="None")
    rest = listed(transport, label, includeObject="None", **{"continue": first["metadata"]["continue"]})
    names = [row["cells"][0] for table in (first, rest) for row in table["rows"]]
    assert len(set(names)) == len(names) == NODES_MADE


def test_nodes_are_counted_by_their_labels(transport, label):
    reader = NodeReader(transport, "nobody")
    assert reader.count_nodes(label) == NODES_MADE
    assert reader.count_nodes(f"{label},of=else") == 0


def test_nodes_are_named_by_their_labels(transport, label):
    reader = NodeReader(transport, "nobody")
    assert len(reader.nodes_with(label)) == NODES_MADE
    assert reader.nodes_with(f"{label},of=else") == frozenset()
