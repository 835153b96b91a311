"""Strategic merge patch: lists with a merge key are merged by it, all others are replaced whole.

The keys are those of the `patchMergeKey` tags in k8s.io/api. `spec.taints` has none on purpose: it is atomic, so
a patch with one taint in it removes everybody else's.
"""

from typing import Any

from gpuwatch.sim.kubeapi.patch import PatchError

_POD_SPEC = {
    "volumes": "name",
    "containers": "name",
    "initContainers": "name",
    "ephemeralContainers": "name",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "resourceClaims": "name",
    "schedulingGates": "name",
    "topologySpreadConstraints": "topologyKey",
}
_CONTAINER = {"env": "name", "ports": "containerPort", "volumeMounts": "mountPath", "volumeDevices": "devicePath"}

_PRIMITIVE = ""
_MERGED: dict[tuple[str, ...], str] = {
    ("metadata", "ownerReferences"): "uid",
    ("metadata", "finalizers"): _PRIMITIVE,
    ("status", "conditions"): "type",
    ("status", "addresses"): "type",
    ("status", "podIPs"): "ip",
    ("status", "hostIPs"): "ip",
    **{("spec", name): key for name, key in _POD_SPEC.items()},
    **{
        ("spec", containers, "*", name): key
        for containers in ("containers", "initContainers", "ephemeralContainers")
        for name, key in _CONTAINER.items()
    },
}
"""Path of a list to the member that identifies its items; `_PRIMITIVE` where items are their own identity."""


def strategic_merge(document: Any, patch: Any, path: tuple[str, ...] = ()) -> Any:
    """Return `document` with `patch` merged in. Raises PatchError where a directive or an item makes no sense."""
    if not isinstance(patch, dict) or not isinstance(document, dict):
        return _cleaned(patch)
    directive = patch.get("$patch", "merge")
    if directive == "replace":
        return _cleaned({key: value for key, value in patch.items() if key != "$patch"})
    if directive == "delete":
        return {}
    if directive != "merge":
        raise PatchError(f"unknown patch directive: {directive}")
    merged = _retained(document, patch)
    for key, value in patch.items():
        if key.startswith("$"):
            _direct(merged, key, value)
        elif value is None:
            merged.pop(key, None)
        elif isinstance(value, list) and (*path, key) in _MERGED:
            merged[key] = _merge_list(merged.get(key) or [], value, (*path, key))
        else:
            merged[key] = strategic_merge(merged.get(key), value, (*path, key))
    return _arranged(merged, patch, document, path)


def _merge_list(old: list[Any], patch: list[Any], path: tuple[str, ...]) -> list[Any]:
    identity = _MERGED[path]
    if identity == _PRIMITIVE:
        return _ordered([*old, *(item for item in patch if item not in old)], patch, old, identity)
    if {"$patch": "replace"} in patch:
        return [_cleaned(item) for item in patch if item != {"$patch": "replace"}]
    merged = list(old)
    for item in patch:
        if not isinstance(item, dict) or identity not in item:
            raise PatchError(f"map: {_as_go_prints(item)} does not contain declared merge key: {identity}")
        at = next((at for at, each in enumerate(merged) if each.get(identity) == item[identity]), None)
        if item.get("$patch") == "delete":
            merged = [each for each in merged if each.get(identity) != item[identity]]
        elif at is None:
            merged.append(_cleaned(item))
        else:
            merged[at] = strategic_merge(merged[at], item, (*path, "*"))
    return _ordered(merged, patch, old, identity)


def _arranged(merged: Any, patch: dict[str, Any], document: Any, path: tuple[str, ...]) -> Any:
    """Put lists into the order that kubectl asks for."""
    for directive, order in patch.items():
        name, _, key = directive.partition("/")
        identity = _MERGED.get((*path, key))
        if name == "$setElementOrder" and identity is not None and key in merged:
            merged[key] = _ordered(merged[key], order, document.get(key) or [], identity)
    return merged


def _ordered(merged: list[Any], wanted: list[Any], old: list[Any], identity: str) -> list[Any]:
    """Items of `wanted` in its order, before all others but those that stood before them in `old`."""

    def place(items: list[Any], item: Any) -> int:
        marks = [_mark(each, identity) for each in items]
        return marks.index(_mark(item, identity)) if _mark(item, identity) in marks else -1

    named = sorted((item for item in merged if place(wanted, item) >= 0), key=lambda item: place(wanted, item))
    others = [item for item in merged if place(wanted, item) < 0]
    result: list[Any] = []
    while named and others:
        first = 0 <= place(old, others[0]) < place(old, named[0])
        result.append((others if first else named).pop(0))
    return [*result, *named, *others]


def _mark(item: Any, identity: str) -> Any:
    return item.get(identity) if identity != _PRIMITIVE else item


def _retained(document: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    keep = patch.get("$retainKeys")
    return dict(document) if keep is None else {key: value for key, value in document.items() if key in keep}


def _direct(merged: dict[str, Any], directive: str, value: Any) -> None:
    name, _, key = directive.partition("/")
    if name == "$deleteFromPrimitiveList" and isinstance(merged.get(key), list):
        merged[key] = [item for item in merged[key] if item not in value]
    elif name not in ("$patch", "$retainKeys", "$deleteFromPrimitiveList", "$setElementOrder"):
        raise PatchError(f"unknown patch directive: {directive}")


def _as_go_prints(value: Any) -> str:
    if not isinstance(value, dict):
        return str(value)
    return f"map[{' '.join(f'{key}:{_as_go_prints(each)}' for key, each in sorted(value.items()))}]"


def _cleaned(value: Any) -> Any:
    """Take the directives and nulls out of what is put in where nothing was."""
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _cleaned(each) for key, each in value.items() if each is not None and not key.startswith("$")}
