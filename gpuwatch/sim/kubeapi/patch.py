"""JSON Patch (RFC 6902) and JSON Merge Patch (RFC 7386); both leave the document they are given as it is."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any


class PatchError(ValueError):
    """A patch that is malformed, or does not fit the document."""


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


def json_patch(document: Any, operations: Sequence[Any]) -> Any:
    """Return `document` after all operations, or raise PatchError: all of them or none."""
    holder = {"": deepcopy(document)}
    for operation in operations:
        if not isinstance(operation, dict):
            raise PatchError("an operation must be an object")
        op, path = operation.get("op"), _pointer(operation.get("path"))
        if op in ("add", "replace", "test") and "value" not in operation:
            raise PatchError(f"{op} needs a value")
        if op == "add":
            _add(holder, path, deepcopy(operation["value"]))
        elif op == "remove":
            _remove(holder, path)
        elif op == "replace":
            _remove(holder, path)
            _add(holder, path, deepcopy(operation["value"]))
        elif op in ("move", "copy"):
            _carry(holder, _pointer(operation.get("from")), path, move=op == "move")
        elif op == "test":
            if not _same(_get(holder, path), operation["value"]):
                raise PatchError(f"testing value {operation['path']} failed")
        else:
            raise PatchError(f"unexpected kind: {op}")
    return _get(holder, [""])


def _carry(holder: Any, source: list[str], path: list[str], *, move: bool) -> None:
    if move and path[: len(source)] == source and path != source:
        raise PatchError("cannot move a value into itself")
    value = deepcopy(_get(holder, source))
    if move:
        _remove(holder, source)
    _add(holder, path, value)


def _pointer(path: Any) -> list[str]:
    """Split a JSON pointer; the whole document is the member with the empty name of a holder."""
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise PatchError(f"not a JSON pointer: {path!r}")
    return [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")]


def _get(document: Any, path: Sequence[str]) -> Any:
    for part in path:
        if isinstance(document, dict) and part in document:
            document = document[part]
        elif isinstance(document, list):
            document = document[_index(document, part, len(document) - 1)]
        else:
            raise PatchError(f"no member {part!r}")
    return document


def _add(document: Any, path: Sequence[str], value: Any) -> None:
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif isinstance(parent, list):
        at = len(parent) if last == "-" else _index(parent, last, len(parent))
        parent.insert(at, value)
    else:
        raise PatchError(f"no place for {last!r}")


def _remove(document: Any, path: Sequence[str]) -> None:
    _get(document, path)
    parent, last = _get(document, path[:-1]), path[-1]
    del parent[int(last) if isinstance(parent, list) else last]


def _index(parent: list[Any], part: str, highest: int) -> int:
    if not (part.isascii() and part.isdigit()) or (part[0] == "0" and part != "0") or int(part) > highest:
        raise PatchError(f"no index {part!r} in a list of {len(parent)}")
    return int(part)


def _same(left: Any, right: Any) -> bool:
    """Compare as JSON does: true is not 1, while 1 is 1.0."""
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(_same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_same, left, right))
    return bool(left == right)
