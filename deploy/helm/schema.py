"""values.schema.json: which values there are, from values.yaml, values.types.yaml and the configuration's own schema.

A type follows from the default in values.yaml, a description from its comment, anything stricter is in
values.types.yaml. The configuration below `config` is what `gpuwatch config schema` prints.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml

from deploy.helm.values import Value
from gpuwatch.config import Config

TYPES = Path(__file__).parent / "values.types.yaml"
OF_PARENTS = {
    "global": {"type": "object", "description": "What a parent chart sets for all of its charts; not used here."},
    "enabled": {"type": "boolean", "description": "For the condition of a parent chart; not used here."},
}
"""What Helm or the author of a parent chart adds to the values."""

_NAMES = {str: "string", bool: "boolean", int: "integer", list: "array", dict: "object"}


def schema(values: list[Value]) -> dict[str, Any]:
    """The schema of all values; what none of its objects names is refused."""
    types = yaml.safe_load(TYPES.read_text())
    stricter: dict[str, Any] = types["values"]
    if unknown := stricter.keys() - {value.name for value in values}:
        raise ValueError(f"values.types.yaml describes what values.yaml does not have: {sorted(unknown)}")
    properties: dict[str, Any] = dict(OF_PARENTS)
    for value in values:
        *parents, key = value.path
        place = properties
        for parent in parents:
            place = place[parent].get("properties", {})
        place[key] = _described(value, stricter.get(value.name, {}))
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Values of the chart gpuwatch",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        "$defs": {**types["$defs"], **msgspec.json.schema(Config)["$defs"]},
    }


def _described(value: Value, stricter: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"description": value.description}
    if "$ref" in stricter:
        return {**schema, **stricter}
    schema |= {"type": _NAMES[type(value.default)], **stricter}
    if schema["type"] == "object" and "properties" not in schema:
        schema |= {"properties": {}, "additionalProperties": False}
    return schema
