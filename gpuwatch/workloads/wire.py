"""Protocol Buffers as bytes: varints, and messages by a schema. The decoder skips what the schema does not list.

The package protobuf would cost the agent 3 MiB for two messages.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

Schema = Mapping[str, Sequence[tuple[int, str, str]]]
"""Message -> its fields: number, name, and `string` or another message; `*` marks a repeated field."""

MOST_FIELDS = 200_000
"""Of a reply, nested messages included. A kubelet with 500 pods and 5,000 devices of all kinds has 30,000."""

LONGEST_VARINT = 10
"""Bytes, for 64 bits."""

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
FIXED_BYTES = {FIXED64: 8, FIXED32: 4}


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at an offset, seven bits a byte, and the offset after it.

    Raises:
        ValueError: the data ends within it, or it has more than 64 bits.
    """
    value = 0
    for number, byte in enumerate(data[at : at + LONGEST_VARINT]):
        value |= (byte & 0x7F) << 7 * number
        if byte < 0x80:
            return value, at + number + 1
    raise ValueError("a number that is cut short, or too long")


def decode(schema: Schema, message: str, data: bytes) -> SimpleNamespace:
    """A message with an attribute for each field of the schema; all of them are strings or repeated.

    Raises:
        ValueError: these bytes are no such message, or have more than MOST_FIELDS.
    """
    return _decode(schema, message, data, iter(range(MOST_FIELDS)))


def _decode(schema: Schema, message: str, data: bytes, room: Iterator[int]) -> SimpleNamespace:
    fields = {number: (name, kind) for number, name, kind in schema[message]}
    found = SimpleNamespace(**{name: [] if kind.endswith("*") else "" for name, kind in fields.values()})
    for number, content in _delimited(data, room):
        if number not in fields:
            continue
        name, kind = fields[number]
        inner = kind.rstrip("*")
        value = content.decode() if inner == "string" else _decode(schema, inner, content, room)
        if kind.endswith("*"):
            getattr(found, name).append(value)
        else:
            setattr(found, name, value)
    return found


def encode(schema: Schema, message: str, values: Mapping[str, Any]) -> bytes:
    """The bytes of a message given as texts, lists and further messages; what is not given is empty."""
    written = bytearray()
    for number, name, kind in schema[message]:
        inner, given = kind.rstrip("*"), values.get(name)
        for each in given or () if kind.endswith("*") else [given] if given else ():
            content = each.encode() if inner == "string" else encode(schema, inner, each)
            written += _varint_of(number << 3 | LENGTH_DELIMITED) + _varint_of(len(content)) + content
    return bytes(written)


def _varint_of(number: int) -> bytes:
    return bytes((number,)) if number < 0x80 else bytes((number & 0x7F | 0x80,)) + _varint_of(number >> 7)


def _delimited(data: bytes, room: Iterator[int]) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of the fields that are strings or messages. `room`: has an item for each further field."""
    at = 0
    while at < len(data):
        if next(room, None) is None:
            raise ValueError(f"more than {MOST_FIELDS} fields")
        key, at = varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == VARINT:
            _, at = varint(data, at)
            continue
        length, at = varint(data, at) if kind == LENGTH_DELIMITED else (FIXED_BYTES.get(kind, len(data)), at)
        end = at + length
        if end > len(data) or not number:
            raise ValueError(f"field {number} of type {kind} does not fit")
        if kind == LENGTH_DELIMITED:
            yield number, data[at:end]
        at = end
