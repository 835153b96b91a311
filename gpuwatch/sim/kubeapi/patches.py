"""JSON Merge Patch (RFC 7386), and as much of Kubernetes' strategic merge patch as gpuwatch sends: `status.conditions`
of Nodes and pods merged by their type. Both leave the document they are given as it is.
"""

from typing import Any


def merge_patch(document: Any, patch: Any) -> Any:
    """Return `document` with `patch` merged in; null removes a member, everything but objects replaces."""
    if not isinstance(patch, dict):
        return patch
    merged = dict(document) if isinstance(document, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def strategic_merge_patch(document: Any, patch: Any) -> Any:
    """As `merge_patch`, but conditions are merged by type, `$patch: delete` removes one, and new ones come first.

    Raises KeyError for a condition without a type.
    """
    conditions = (patch.get("status") or {}).get("conditions")
    merged = merge_patch(document, patch)
    if conditions is None:
        return merged
    old = (document.get("status") or {}).get("conditions") or []
    patched = {condition["type"]: condition for condition in conditions}
    by_type = {condition["type"]: condition for condition in old}
    added = [condition for name, condition in patched.items() if name not in by_type]
    kept = [merge_patch(condition, patched.get(name, {})) for name, condition in by_type.items()]
    merged["status"]["conditions"] = [each for each in (*added, *kept) if each.get("$patch") != "delete"]
    return merged
