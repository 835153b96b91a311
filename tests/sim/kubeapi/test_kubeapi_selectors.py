"""Label and field selectors of the simulated API server against a plain reading of what they mean."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.sim.kubeapi.messages import ApiError
from gpuwatch.sim.kubeapi.resources import RESOURCES
from gpuwatch.sim.kubeapi.selectors import Selection, label_requirements, parse_fields, parse_labels

KEYS = st.sampled_from(["a", "b.c", "gpuwatch.io/gpu-class", "x_y"])
VALUES = st.sampled_from(["", "1", "h100", "a.b_c-d"])
LABELS = st.dictionaries(KEYS, VALUES)
SPACES = st.sampled_from(["", " "])


@st.composite
def requirements(draw):
    """The text of one requirement, and its meaning."""
    key, some, space = draw(KEYS), draw(st.lists(VALUES, min_size=1, max_size=3)), draw(SPACES)
    one = some[0]
    return draw(
        st.sampled_from(
            [
                (f"{key}{space}={space}{one}", lambda labels: labels.get(key) == one),
                (f"{key}{space}=={space}{one}", lambda labels: labels.get(key) == one),
                (f"{key}{space}!={space}{one}", lambda labels: labels.get(key) != one),
                (f"{key} in ({','.join(some)})", lambda labels: labels.get(key) in some),
                (f"{key} notin ({f',{space}'.join(some)})", lambda labels: labels.get(key) not in some),
                (f"{space}{key}{space}", lambda labels: key in labels),
                (f"!{space}{key}", lambda labels: key not in labels),
            ]
        )
    )


def attempt(parse):
    """What was parsed, or the status code of the refusal."""
    try:
        return parse(), None
    except ApiError as refusal:
        return (), refusal.code


@given(st.lists(requirements(), max_size=4), LABELS)
def test_a_selector_means_all_of_its_requirements(chosen, labels):
    parsed = parse_labels(",".join(text for text, _ in chosen))
    assert all(each.matches(labels) for each in parsed) == all(means(labels) for _, means in chosen)


@given(st.text(alphabet="ab=!,() innot/.\n\x00é", max_size=20) | st.text(max_size=20))
def test_any_text_is_a_selector_or_a_bad_request(text):
    parsed, code = attempt(lambda: parse_labels(text))
    assert code == 400 or all(each.key for each in parsed)


@pytest.mark.parametrize("text", ["a b", "a in b", "a in (b", "=b", "a=b=c", "a>1", ",", "a,,b", "a=!"])
def test_what_is_no_selector(text):
    with pytest.raises(ApiError):
        parse_labels(text)


@given(st.text(alphabet="metadata.name=!,x", max_size=24))
def test_any_text_is_a_field_selector_or_a_bad_request(text):
    parsed, code = attempt(lambda: parse_fields(text, RESOURCES["nodes"]))
    assert code == 400 or {each.key for each in parsed} <= {"metadata.name", "metadata.namespace", "spec.unschedulable"}


def test_fields_of_each_kind():
    pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "gpu-1"}, "status": {"phase": "Running"}}
    assert _selects("pods", "spec.nodeName=gpu-1,status.phase!=Failed", pod)
    assert not _selects("pods", "spec.nodeName=gpu-2", pod)
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"name": "gpu-1", "kind": "Node"},
    }
    assert _selects("events", "involvedObject.name=gpu-1,involvedObject.kind=Node", event)
    node = {"metadata": {"name": "gpu-1"}, "spec": {}}
    assert _selects("nodes", "spec.unschedulable=false", node)
    assert _selects("nodes", "spec.unschedulable!=false", {**node, "spec": {"unschedulable": True}})


def test_selectors_of_objects():
    selector = {
        "matchLabels": {"app": "train"},
        "matchExpressions": [
            {"key": "tier", "operator": "NotIn", "values": ["test"]},
            {"key": "gpu", "operator": "Exists"},
        ],
    }
    parsed = label_requirements(selector)
    assert all(each.matches({"app": "train", "gpu": ""}) for each in parsed)
    assert not all(each.matches({"app": "train", "gpu": "", "tier": "test"}) for each in parsed)
    assert label_requirements({}) == ()  # everything
    assert label_requirements(None) is None  # nothing


def _selects(plural: str, text: str, value: dict) -> bool:
    return Selection.of(RESOURCES[plural], {"fieldSelector": text}).matches(value)
