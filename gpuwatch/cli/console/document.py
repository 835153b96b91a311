"""The JSON and YAML that scripts read: `apiVersion`, `kind`, `items`; base units, RFC 3339 times, null for unknown."""

import math
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from typing import Any

import msgspec

from gpuwatch.model.text import json_text

API_VERSION = "gpuwatch/v1"


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """What surrounds the items of every command. `at`: the time of the View."""

    apiVersion: str = API_VERSION
    kind: str
    node: str | None = None
    at: datetime | None = None
    items: tuple[Any, ...]


def plain(value: Any) -> Any:
    """Structs as mappings with every member, so that what is unknown is null and not missing; lone surrogates, which
    neither JSON nor YAML can hold, as escapes.
    """
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
    if isinstance(value, Mapping):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(member) for member in value]
    if isinstance(value, str) and not value.isprintable():
        return value.encode("utf-8", "backslashreplace").decode()  # JSON has no lone surrogates
    return value.value if isinstance(value, Enum) else value


def to_json(document: Any, *, lines: bool = False) -> str:
    """Indented, or on one line for NDJSON."""
    encoded = msgspec.json.encode(plain(document))
    return json_text(encoded if lines else msgspec.json.format(encoded, indent=2))


def to_yaml(document: Any) -> str:
    """The same as block YAML; several in a row form a stream."""
    import yaml

    value = msgspec.to_builtins(plain(document))
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True)
    if not all(line.isprintable() for line in text.split("\n")):
        text = yaml.safe_dump(value, sort_keys=False, width=math.inf)  # everything beyond ASCII as escapes, on one line
    return text.rstrip("\n")


def schema(kind: str, item: type[msgspec.Struct], envelope: type[msgspec.Struct] = Envelope) -> str:
    """JSON Schema of the document of a kind."""
    (top, inner), definitions = msgspec.json.schema_components((envelope, item), ref_template="#/$defs/{name}")
    for definition in definitions.values():
        if "properties" in definition:
            definition["required"] = list(definition["properties"])
    document = definitions.pop(top["$ref"].rpartition("/")[2])
    document["properties"]["kind"] = {"const": kind}
    document["properties"]["apiVersion"] = {"const": API_VERSION}
    document["properties"]["items"] = {"type": "array", "items": inner}
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **document, "title": kind, "$defs": definitions}
    return msgspec.json.format(msgspec.json.encode(whole), indent=2).decode()
