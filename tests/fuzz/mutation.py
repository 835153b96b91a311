"""Changes of known inputs: of their bytes, and of the values of a document that stays one.

The suite makes some at each run, without a coverage guide. Changed bytes seldom pass a parser, so they seldom reach
what judges the values; `reshaped` does, here and as libFuzzer's own mutator in `make fuzz`.
"""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

WORDS = (
    b"\x00", b"\xff", b"\xef\xbb\xbf", b"\x1b[2J", b"\n", b"\r\n", b"\t", b"-", b"0", b"090", b"0x", b"1e999",
    b"9" * 50, b"-1", b".nan", b"NaN", b"Infinity", b"null", b"true", b"[" * 40, b"{", b"}", b'"', b"'", b"&a ",
    b"*a", b"!!", b"---\n", b"<<: ", b": ", b", ", b"|\n", b"\\ud800", b"\xed\xa0\x80", b"%", b"<!DOCTYPE", b"&#0;",
    b"NVRM: Xid (PCI:0000:0f:00): 79, ", b"<6>[    1.000000] ", b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n", b"\r\n\r\n",
)  # fmt: skip


VALUES = (
    None, True, -1, 0, 1, 7, 0.5, -0.0, 1e308, 2**31, 2**63, 2**64, 10**40, "", "x", "GPU-0", "0", "\ud800", "\x1b[2J",
    "../x", "9" * 5000, [], {}, [[]], {"": None},
)  # fmt: skip

Reshape = Callable[[bytes, random.Random], bytes | None]
"""Another document of the same kind; None: the bytes are not of that kind."""


def mutants(
    seeds: Sequence[bytes], count: int, chance: random.Random, reshape: Reshape | None = None
) -> Iterator[bytes]:
    """`count` of them, each one to four changes away from a seed; the seeds first. Half keep their shape."""
    yield from seeds[:count]
    for _ in range(count - len(seeds)):
        data = chance.choice(seeds)
        for _ in range(chance.randint(1, 4)):
            other = reshape(data, chance) if reshape and chance.random() < 0.5 else None
            data = _changed(data, chance.choice(seeds), chance) if other is None else other
        yield data


def reshaped(data: bytes, chance: random.Random) -> bytes | None:
    """A JSON document, or one of JSON lines, in which one member is another, twice or not there."""
    lines = data.splitlines(keepends=True) or [b""]
    at = chance.randrange(len(lines))
    for before, part, after in ((b"", data, b""), (b"".join(lines[:at]), lines[at], b"".join(lines[at + 1 :]))):
        try:
            tree = json.loads(part)
        except (ValueError, RecursionError):
            continue
        return before + json.dumps(_reshaped(tree, chance)).encode() + b"\n" + after
    return None


def _reshaped(tree: Any, chance: random.Random) -> Any:
    if not isinstance(tree, dict | list) or not tree or chance.random() < 0.1:
        return chance.choice(VALUES)
    key = chance.choice(list(tree)) if isinstance(tree, dict) else chance.randrange(len(tree))
    match chance.randrange(8):
        case 0:
            del tree[key]
        case 1 if isinstance(tree, dict):
            tree[chance.choice(list(tree))] = tree[key]
        case 1:
            tree.append(tree[key])
        case _:
            tree[key] = _reshaped(tree[key], chance)
    return tree


def _changed(data: bytes, other: bytes, chance: random.Random) -> bytes:
    at, to = sorted(chance.randint(0, len(data)) for _ in range(2))
    to = min(to, at + 64)
    match chance.randrange(6):
        case 0:
            return data[:at] + chance.choice(WORDS) + data[at:]
        case 1:
            return data[:at] + chance.choice(WORDS) + data[to:]
        case 2:
            return data[:at] + data[to:]
        case 3:
            return data[:to] + data[at:]
        case 4:
            return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
        case _:
            return data[:at] + other[chance.randint(0, len(other)) :]
