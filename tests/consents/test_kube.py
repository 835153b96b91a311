"""What the API server tells about tuning: of which pods, which words of them, and nothing else of theirs."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.consents import kube as consents_kube
from gpuwatch.consents.kube import (
    JOB_INDEX,
    JOB_LABELS,
    JOB_NAME,
    LONGEST_NAME,
    LONGEST_VALUE,
    MOST_CONTAINERS,
    MOST_PAGES,
    ConsentsReader,
)
from gpuwatch.kube.errors import ApiCall, Garbled, NotFound
from gpuwatch.kube.reader import PAGE
from gpuwatch.model.consent import AUTOTUNE, CLASS, GANG, MAX_SLOWDOWN, POWER_AGENTS, PodConsent
from tests.kube.kube_server import NODE, served

LIST = ApiCall("list", "pods")
GET = ApiCall("get", "namespaces", "ml")
GPU = {"limits": {"nvidia.com/gpu": "2"}}


def body(*items, **metadata):
    return json.dumps({"items": list(items), "metadata": metadata}).encode()


def pod(name="train-0", *, annotations=None, labels=None, resources=GPU, phase="Running", **spec):
    return {
        "metadata": {
            "name": name,
            "namespace": "ml",
            "uid": f"uid-of-{name}",
            "labels": labels or {},
            "annotations": annotations or {},
        },
        "spec": {"containers": [{"name": "c", "resources": resources, "env": [{"name": "PASSWORD"}]}], **spec},
        "status": {"phase": phase},
    }


def parsed(*items, resources=()):
    return consents_kube.parse_pods(LIST, body(*items), resources)[0]


def test_what_a_pod_says_is_kept_and_nothing_else():
    said = {AUTOTUNE: "enforce", MAX_SLOWDOWN: "3%", CLASS: "batch", GANG: "local", POWER_AGENTS[0]: "400"}
    (found,) = parsed(pod(annotations={**said, "password": "planted"}, labels={"team": "planted"}, priority=-5))
    assert found == PodConsent(namespace="ml", name="train-0", uid="uid-of-train-0", annotations=said, priority=-5)
    assert "planted" not in str(found)


def owned(*references, image="reg.example/a:1"):
    """A pod of these controllers with one container."""
    found = pod()
    found["metadata"]["ownerReferences"] = list(references)
    found["spec"]["containers"][0]["image"] = image
    return found


def test_who_made_a_pod_is_kept():
    other = {"kind": "Node", "name": "n", "uid": "planted"}
    rank = {"kind": "ReplicaSet", "name": "chat-5d9c7f6b8", "uid": "planted", "controller": True}
    assert parsed(owned(other, rank))[0].owner == ("ReplicaSet", "chat-5d9c7f6b8")
    assert parsed(owned(other))[0].owner is None
    assert "planted" not in str(parsed(owned(other, rank)))


def test_images_are_kept_without_digest_and_without_the_registrys_user():
    (found,) = parsed(owned(image="planted:secret@reg.example/a:1@sha256:" + "0" * 64))
    assert found.images == {"c": "reg.example/a:1"}


@pytest.mark.parametrize("image", ["i" * (LONGEST_NAME + 1), "reg/\u00e4:1", "reg/a\x1b[31m:1"])
def test_what_no_registry_has_is_no_image(image):
    assert parsed(owned(image=image))[0].images == {}


def test_one_pod_does_not_fill_the_file_of_a_node():
    long = "n" * 100_000
    heavy = owned({"kind": long, "name": long, "controller": True}, image="reg/a:1")
    heavy["spec"]["containers"] *= 1000
    heavy["spec"]["containers"] = [{**each, "name": f"c{at}"} for at, each in enumerate(heavy["spec"]["containers"])]
    (found,) = parsed(heavy)
    assert found.owner == (long[:LONGEST_NAME], long[:LONGEST_NAME])
    assert len(found.images) == MOST_CONTAINERS


@pytest.mark.parametrize(
    ("resources", "more", "matters"),
    [
        ({}, {}, False),
        (None, {}, None),
        ({"requests": {"cpu": "1", "memory": "1Gi"}}, {}, False),
        ({"limits": {"nvidia.com/gpu": "0"}}, {}, False),
        ({"limits": {"nvidia.com/gpu": 1}}, {}, True),
        ({"requests": {"nvidia.com/mig-1g.10gb": "1"}}, {}, True),
        ({"limits": {"example.com/gpu": "1"}}, {}, True),
        ({"limits": {"example.com/nic": "1"}}, {}, False),
        ({}, {"resourceClaims": [{"name": "gpu"}]}, True),
        ({}, {"initContainers": [{"resources": GPU}]}, True),
        ({}, {"initContainers": None, "resourceClaims": None}, False),
    ],
)
def test_pods_without_gpus_do_not_matter(resources, more, matters):
    if matters is None:
        with pytest.raises(Garbled):
            parsed(pod(resources=resources))
        return
    assert bool(parsed(pod(resources=resources, **more), resources=["example.com/gpu"])) is matters


def test_who_says_something_about_gpus_matters_however_it_got_them():
    """A pod can see GPUs that it has not asked for: by its runtime class and a variable."""
    assert parsed(pod(resources={}, annotations={AUTOTUNE: "off"}))


@pytest.mark.parametrize(
    ("phase", "matters"), [("Pending", True), ("Running", True), ("Succeeded", False), ("Failed", False)]
)
def test_who_has_ended_holds_no_gpu(phase, matters):
    assert bool(parsed(pod(phase=phase))) is matters


@pytest.mark.parametrize("label", JOB_LABELS)
def test_ranks_of_distributed_jobs(label):
    (found,) = parsed(pod(labels={label: "llm", JOB_NAME: "llm-workers-0", JOB_INDEX: "3"}))
    assert found.job == "llm"


@pytest.mark.parametrize(
    ("labels", "annotations", "job"),
    [
        ({JOB_INDEX: "0", JOB_NAME: "sweep"}, {}, "sweep"),
        ({JOB_NAME: "sweep"}, {JOB_INDEX: "0"}, "sweep"),
        ({JOB_INDEX: "0"}, {}, JOB_INDEX),
        ({JOB_NAME: "alone"}, {}, None),
        ({JOB_LABELS[0]: ""}, {}, JOB_LABELS[0]),
        ({"app": "web"}, {}, None),
    ],
)
def test_a_job_whose_pods_have_different_work_is_distributed(labels, annotations, job):
    (found,) = parsed(pod(labels=labels, annotations=annotations))
    assert found.job == job


@pytest.mark.parametrize("value", ["enforce" + " " * 200 + "not", "0.03" + "0" * 100_000])
def test_a_book_in_an_annotation_is_nonsense_and_short(value):
    (found,) = parsed(pod(annotations={MAX_SLOWDOWN: value}))
    kept = found.annotations[MAX_SLOWDOWN]
    assert len(kept) == LONGEST_VALUE
    assert kept.endswith("…")


def test_the_longest_value_is_whole():
    (found,) = parsed(pod(annotations={CLASS: "x" * LONGEST_VALUE}))
    assert found.annotations == {CLASS: "x" * LONGEST_VALUE}


@pytest.mark.parametrize("missing", ["name", "namespace", "uid"])
def test_a_pod_without_a_name_is_garbled(missing):
    wrong = pod()
    del wrong["metadata"][missing]
    with pytest.raises(Garbled, match="no name, namespace or uid"):
        parsed(wrong)


def test_a_body_that_is_no_list_is_garbled():
    """An empty list would mean that nobody consents."""
    with pytest.raises(Garbled):
        consents_kube.parse_pods(LIST, b"{}")
    assert consents_kube.parse_pods(LIST, b'{"items": null}') == ((), None)


def test_another_namespace_is_garbled():
    other = json.dumps({"metadata": {"name": "other", "annotations": {AUTOTUNE: "enforce"}}}).encode()
    with pytest.raises(Garbled, match="about other"):
        consents_kube.parse_namespace(GET, other)


MEMBERS = (
    "items",
    "metadata",
    "spec",
    "status",
    "labels",
    "annotations",
    "containers",
    "resources",
    "name",
    "uid",
    "phase",
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.text(max_size=5) | st.integers(-1, 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("parse", [consents_kube.parse_pods, consents_kube.parse_namespace])
@given(data=st.binary(max_size=200) | ANYTHING.map(lambda value: json.dumps(value).encode()))
def test_whatever_answers_is_read_or_called_garbled(parse, data):
    try:
        found = parse(GET, data)
    except Garbled:
        return
    assert isinstance(found, tuple | dict)


@pytest.fixture
def api():
    with served() as given_:
        yield given_


def test_the_pods_of_our_node_and_their_namespaces(api):
    api.cluster.add_pod("kube-system", "dns", node=NODE, gpus=0)
    api.cluster.add_node("n2")
    api.cluster.add_pod("ml", "elsewhere-0", node="n2")
    namespace = api.cluster.add_namespace("ml")
    api.cluster.put("namespaces", {**namespace, "metadata": {**namespace["metadata"], "annotations": {CLASS: "batch"}}})
    reader = ConsentsReader(api.transport, NODE)
    assert [(each.namespace, each.name) for each in reader.gpu_pods()] == [("ml", "train-0")]
    assert reader.namespace("ml") == {CLASS: "batch"}
    with pytest.raises(NotFound):
        reader.namespace("missing")


class Pages:
    """A Transport that answers with page after page, `many` of them, and remembers what it was asked."""

    def __init__(self, many):
        self.many, self.asked = many, []

    def request(self, call, path, *, query):
        self.asked.append(query)
        left = len(self.asked) < self.many
        return body(pod(f"train-{len(self.asked)}"), **({"continue": f"after-{len(self.asked)}"} if left else {}))


def test_a_list_in_pages_is_read_to_its_end():
    pages = Pages(3)
    assert [each.name for each in ConsentsReader(pages, NODE).gpu_pods()] == ["train-1", "train-2", "train-3"]
    assert [query.get("continue") for query in pages.asked] == [None, "after-1", "after-2"]
    assert {query["fieldSelector"] for query in pages.asked} == {f"spec.nodeName={NODE}"}
    assert {query["limit"] for query in pages.asked} == {PAGE}


def test_the_first_page_is_from_the_servers_cache():
    """Else every node has the server read all pods of the cluster from etcd; a later page names its own revision."""
    pages = Pages(2)
    ConsentsReader(pages, NODE).gpu_pods()
    assert [query.get("resourceVersion") for query in pages.asked] == ["0", None]


def test_a_list_without_an_end_is_given_up():
    pages = Pages(10**9)
    with pytest.raises(Garbled, match=f"more than {MOST_PAGES} pages"):
        ConsentsReader(pages, NODE).gpu_pods()
    assert len(pages.asked) == MOST_PAGES
