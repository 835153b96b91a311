"""Merge patches by the examples of RFC 7386, and the strategic merge of conditions."""

import pytest

from gpuwatch.sim.kubeapi.writes import merge_patch, strategic_merge_patch

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


@pytest.mark.parametrize(("document", "patch", "expected"), RFC_7386)
def test_merge_patch_does_as_its_rfc_says(document, patch, expected):
    before = repr(document)
    assert merge_patch(document, patch) == expected
    assert repr(document) == before


def test_taints_are_one_value():
    node = {"spec": {"taints": [{"key": "theirs", "effect": "NoSchedule"}]}}
    mine = [{"key": "mine", "effect": "NoSchedule"}]
    assert strategic_merge_patch(node, {"spec": {"taints": mine}}) == {"spec": {"taints": mine}}


def test_conditions_are_merged_by_type():
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    node = {"status": {"conditions": [ready]}}
    sick = {"type": "GPUHealthy", "status": "False"}
    added = strategic_merge_patch(node, {"status": {"conditions": [sick]}})
    assert added["status"]["conditions"] == [sick, ready]
    changed = strategic_merge_patch(added, {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
    assert changed["status"]["conditions"] == [sick, {**ready, "status": "False"}]
    removed = strategic_merge_patch(added, {"status": {"conditions": [{"type": "GPUHealthy", "$patch": "delete"}]}})
    assert removed == node
