"""Label and field selectors (apimachinery, pkg/labels and pkg/fields)."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gpuwatch.sim.kubeapi.messages import Object, bad_request
from gpuwatch.sim.kubeapi.resources import ApiResource

_KEY = r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?"
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_EQUAL = re.compile(rf"\s*({_KEY})\s*(==|!=|=)\s*({_VALUE})\s*")
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_OPERATORS = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!exists"}
"""Operators as objects write them, and as query strings do."""
_SPLIT = re.compile(r",(?![^()]*\))")


class Requirement(msgspec.Struct, frozen=True, kw_only=True):
    """One condition on one label or field."""

    key: str
    operator: str
    """in, notin, exists or !exists; = and != are those with one value."""
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels satisfy it; as in Kubernetes, a missing label satisfies notin."""
        present = self.key in labels
        if self.operator in ("in", "exists"):
            return present and (self.operator == "exists" or labels[self.key] in self.values)
        return not present or (self.operator == "notin" and labels[self.key] not in self.values)


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """Parse `a=b,c!=d,e in (f,g),h notin (i),j,!k`. Raises ApiError 400."""
    return tuple(_requirement(part) for part in _SPLIT.split(text)) if text.strip() else ()


def _requirement(part: str) -> Requirement:
    if found := _SET.fullmatch(part):
        values = tuple(value.strip() for value in found[3].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(key=found[1], operator=found[2], values=values)
    elif found := _EQUAL.fullmatch(part):
        return Requirement(key=found[1], operator="notin" if found[2] == "!=" else "in", values=(found[3],))
    elif found := _EXISTS.fullmatch(part):
        return Requirement(key=found[2], operator=f"{found[1]}exists")
    raise bad_request(f"unable to parse requirement: {part.strip()!r}")


def label_requirements(selector: Object | None) -> tuple[Requirement, ...] | None:
    """Requirements of a LabelSelector object; an empty one selects all, None selects nothing."""
    if selector is None:
        return None
    labels = (
        Requirement(key=key, operator="in", values=(value,)) for key, value in selector.get("matchLabels", {}).items()
    )
    expressions = (
        Requirement(key=each["key"], operator=_OPERATORS[each["operator"]], values=tuple(each.get("values") or ()))
        for each in selector.get("matchExpressions", [])
    )
    return (*labels, *expressions)


def parse_fields(text: str, resource: ApiResource) -> tuple[Requirement, ...]:
    """Parse `metadata.name=a,status.phase!=b`. Raises ApiError 400 for a field that does not select."""
    found = []
    for part in filter(None, text.split(",")):
        matched = re.fullmatch(r"([^=!]+)(==|!=|=)(.*)", part.strip())
        if matched is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{part}'")
        key, operator, value = matched.groups()
        if key not in ("metadata.name", "metadata.namespace", *resource.fields):
            raise bad_request(f"field label not supported: {key}")
        found.append(Requirement(key=key, operator="notin" if operator == "!=" else "in", values=(value,)))
    return tuple(found)


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """Both selectors of a list."""

    resource: ApiResource
    labels: tuple[Requirement, ...]
    fields: tuple[Requirement, ...]

    @classmethod
    def of(cls, resource: ApiResource, query: Mapping[str, str]) -> "Selection":
        """From the options of a request. Raises ApiError 400."""
        return cls(
            resource=resource,
            labels=parse_labels(query.get("labelSelector", "")),
            fields=parse_fields(query.get("fieldSelector", ""), resource),
        )

    def only(self, field: str) -> str | None:
        """The single value that `field` must have, if the selector names one."""
        named = (each.values[0] for each in self.fields if each.key == field and each.operator == "in")
        return next(named, None)

    def matches(self, value: Object) -> bool:
        """Whether an object is selected."""
        labels = value["metadata"].get("labels", {})
        if not all(each.matches(labels) for each in self.labels):
            return False
        return all(each.matches({each.key: self._field(value, each.key)}) for each in self.fields)

    def _field(self, value: Any, key: str) -> str:
        for part in self.resource.fields.get(key) or key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if isinstance(value, bool) or (value is None and key == "spec.unschedulable"):
            return str(bool(value)).lower()
        return "" if value is None else str(value)
