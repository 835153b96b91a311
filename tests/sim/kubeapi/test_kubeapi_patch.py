"""The three kinds of patch: the examples of RFC 6902 and RFC 7386, Kubernetes' merge keys, and what holds for any."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.sim.kubeapi.patch import PatchError, json_patch, merge_patch
from gpuwatch.sim.kubeapi.strategic import strategic_merge

RFC_6902 = [  # appendix A
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"baz": "qux", "foo": "bar"}),
    ({"foo": ["bar", "baz"]}, [{"op": "add", "path": "/foo/1", "value": "qux"}], {"foo": ["bar", "qux", "baz"]}),
    ({"baz": "qux", "foo": "bar"}, [{"op": "remove", "path": "/baz"}], {"foo": "bar"}),
    ({"foo": ["bar", "qux", "baz"]}, [{"op": "remove", "path": "/foo/1"}], {"foo": ["bar", "baz"]}),
    ({"baz": "qux"}, [{"op": "replace", "path": "/baz", "value": "boo"}], {"baz": "boo"}),
    (
        {"foo": {"bar": "baz", "waldo": "fred"}, "qux": {"corge": "grault"}},
        [{"op": "move", "from": "/foo/waldo", "path": "/qux/thud"}],
        {"foo": {"bar": "baz"}, "qux": {"corge": "grault", "thud": "fred"}},
    ),
    (
        {"foo": ["all", "grass", "cows", "eat"]},
        [{"op": "move", "from": "/foo/1", "path": "/foo/3"}],
        {"foo": ["all", "cows", "eat", "grass"]},
    ),
    (
        {"baz": "qux", "foo": ["a", 2, "c"]},
        [{"op": "test", "path": "/baz", "value": "qux"}, {"op": "test", "path": "/foo/1", "value": 2}],
        {"baz": "qux", "foo": ["a", 2, "c"]},
    ),
    ({"baz": "qux"}, [{"op": "test", "path": "/baz", "value": "bar"}], PatchError),
    (
        {"foo": "bar"},
        [{"op": "add", "path": "/child", "value": {"grandchild": {}}}],
        {"foo": "bar", "child": {"grandchild": {}}},
    ),
    ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux", "xyz": 123}], {"foo": "bar", "baz": "qux"}),
    ({"foo": "bar"}, [{"op": "add", "path": "/baz/bat", "value": "qux"}], PatchError),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": 10}], {"/": 9, "~1": 10}),
    ({"/": 9, "~1": 10}, [{"op": "test", "path": "/~01", "value": "10"}], PatchError),
    ({"foo": ["bar"]}, [{"op": "add", "path": "/foo/-", "value": ["abc"]}], {"foo": ["bar", ["abc"]]}),
    ({"a": 1}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": 1, "b": 1}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
    ({"a": True}, [{"op": "test", "path": "/a", "value": 1}], PatchError),
    ({"a": [1]}, [{"op": "remove", "path": "/a/-"}], PatchError),
    ({"a": [1]}, [{"op": "add", "path": "/a/01", "value": 0}], PatchError),
    ({"a": {"b": 1}}, [{"op": "move", "from": "/a", "path": "/a/b"}], PatchError),
    ({}, [{"op": "invent", "path": "/a"}], PatchError),
]

RFC_7386 = [  # appendix A
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "b"}, ["c"], ["c"]),
    ({"a": "foo"}, None, None),
    ({"a": "foo"}, "bar", "bar"),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]

LEAVES = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["a", "b", ""])
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)
POINTERS = st.lists(st.sampled_from(["a", "b", "0", "1", "-", "~1"]), max_size=3).map(
    lambda parts: "".join(f"/{part}" for part in parts)
)
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": POINTERS},
        optional={"from": POINTERS, "value": JSON},
    ),
    max_size=4,
)


@pytest.mark.parametrize(("document", "patch", "expected"), RFC_6902)
def test_json_patch_does_as_its_rfc_says(document, patch, expected):
    if expected is PatchError:
        with pytest.raises(PatchError):
            json_patch(document, patch)
    else:
        assert json_patch(document, patch) == expected


@pytest.mark.parametrize(("document", "patch", "expected"), RFC_7386)
def test_merge_patch_does_as_its_rfc_says(document, patch, expected):
    assert merge_patch(document, patch) == expected


@given(JSON, OPERATIONS)
def test_json_patch_leaves_its_document_alone_and_refuses_in_one_way(document, operations):
    before = repr(document)
    with contextlib.suppress(PatchError):
        json_patch(document, operations)
    assert repr(document) == before


@given(OBJECTS, OBJECTS)
def test_merging_twice_is_merging_once(document, patch):
    before = repr(document)
    once = merge_patch(document, patch)
    assert merge_patch(once, patch) == once
    assert repr(document) == before


@given(OBJECTS, OBJECTS)
def test_without_merge_keys_a_strategic_patch_is_a_merge_patch(document, patch):
    assert strategic_merge(document, patch) == merge_patch(document, _without_nulls_in_lists(patch))


def test_taints_are_one_value():
    node = {"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}}
    mine = [{"key": "mine", "effect": "NoSchedule"}]
    assert strategic_merge(node, {"spec": {"taints": mine}}) == {"spec": {"taints": mine}}


def test_conditions_are_merged_by_type():
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    node = {"status": {"conditions": [ready]}}
    added = strategic_merge(node, {"status": {"conditions": [{"type": "GPUHealthy", "status": "False"}]}})
    assert added["status"]["conditions"] == [{"type": "GPUHealthy", "status": "False"}, ready]
    changed = strategic_merge(added, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    assert {"type": "Ready", "status": "False", "reason": "KubeletReady"} in changed["status"]["conditions"]
    removed = strategic_merge(changed, {"status": {"conditions": [{"type": "GPUHealthy", "$patch": "delete"}]}})
    assert [each["type"] for each in removed["status"]["conditions"]] == ["Ready"]


def test_kubectl_directives():
    pod = {"metadata": {"finalizers": ["a", "b"]}, "spec": {"containers": [{"name": "x"}, {"name": "y"}], "old": 1}}
    patch = {
        "metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "finalizers": ["c"]},
        "spec": {
            "$setElementOrder/containers": [{"name": "y"}, {"name": "x"}],
            "$retainKeys": ["containers"],
            "containers": [{"name": "x", "image": "i"}],
        },
    }
    assert strategic_merge(pod, patch) == {
        "metadata": {"finalizers": ["c", "b"]},
        "spec": {"containers": [{"name": "y"}, {"name": "x", "image": "i"}]},
    }
    assert strategic_merge({"a": {"b": 1}}, {"a": {"$patch": "replace", "c": 2}}) == {"a": {"c": 2}}


@pytest.mark.parametrize("patch", [{"$patch": "explode"}, {"$nonsense/a": []}, {"status": {"conditions": [{}]}}])
def test_a_strategic_patch_that_makes_no_sense_is_refused(patch):
    with pytest.raises(PatchError):
        strategic_merge({"status": {"conditions": []}}, patch)


def _without_nulls_in_lists(value, inside=False):
    """A strategic patch cleans what it puts in anew, a merge patch only what it merges."""
    if isinstance(value, list):
        return [_without_nulls_in_lists(each, inside=True) for each in value]
    if isinstance(value, dict):
        return {k: _without_nulls_in_lists(v, inside) for k, v in value.items() if not (inside and v is None)}
    return value
