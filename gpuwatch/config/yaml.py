"""YAML of untrusted authors: the configuration, scenarios, baselines, files of a host.

PyYAML splits the text into events; what a value means is decided here, by the core schema of YAML 1.2, where `off` is
a word, `22:00` a time, and only `true` and `false` are booleans. `yaml.safe_load` would read `0600` as 384 and `1:30`
as 90, raise ValueError at `090` and `2026-13-01`, and expand a kilobyte of aliases for minutes. Everything that grows
is bounded: bytes, depth, values (an alias counts as all that it repeats), digits, length of keys. The first error
ends the reading with a UsageError that names file, line and key.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from gpuwatch.config.named_file import read_named_file
from gpuwatch.model.errors import UsageError

MOST_BYTES = 1 << 18
MOST_VALUES = 20_000
MOST_DEPTH = 32
MOST_DIGITS = 40
LONGEST_KEY = 256
LONGEST_PATH = 200
"""Characters of a key's path in a message."""

_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is ten times as fast
_NULL = re.compile(r"~|null|Null|NULL|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", re.ASCII)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LEADING_ZERO = re.compile(r"([-+]?)0+([0-9]+)", re.ASCII)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Document(NamedTuple):
    """`value` is plain: dict, list, str, int, float, bool or None. `lines`: id of a dict or list in it -> key or index
    -> line in the text.
    """

    value: Any
    origin: str
    lines: dict[int, dict[Any, int]]

    def at(self, path: str) -> str:
        """`FILE, line 7` of a key path such as `remediation.maintenance[0].end`, or of the nearest key above it."""
        value, line, rest = self.value, None, path.removeprefix("$").removeprefix(".")
        while rest and id(value) in self.lines:
            names = {key: f"[{key}]" if isinstance(value, list) else str(key) for key in self.lines[id(value)]}
            within = [key for key, name in names.items() if rest == name or rest.startswith((f"{name}.", f"{name}["))]
            if not within:
                break
            key = max(within, key=lambda each: len(names[each]))
            line, rest = self.lines[id(value)][key], rest[len(names[key]) :].removeprefix(".")
            value = value[key]
        return f"{self.origin}, line {line}" if line else self.origin


def read(path: Path, what: str, option: str = "", *, secrets: bool = False) -> Document:
    """The document in a regular file; `what` names the file in errors, and `option` is where its path came from.
    `secrets`: errors quote no value.

    Raises:
        UsageError: the file cannot be read, or as `document` does.
    """
    return document(read_named_file(path, what, option, MOST_BYTES), str(path), secrets=secrets)


def decode(source: bytes | str, origin: str = "the text") -> Any:
    """The value alone. Raises as `document`."""
    return document(source, origin).value


def document(source: bytes | str, origin: str, *, secrets: bool = False, most: int = MOST_BYTES) -> Document:
    """The one document in `source`; an empty one is None. `secrets`: errors quote no value. `most`: bytes; where more
    are allowed, more values are, too.

    Raises:
        UsageError: it is no YAML, holds what gpuwatch does not take (tags, merge keys, doubtful numbers, a second
            document, a key twice, control characters) or exceeds a bound.
    """
    if len(source) > most:
        raise UsageError(f"cannot read {origin}", f"it is larger than {most >> 10} KiB")
    if isinstance(source, str):
        text = source
    elif source.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _error("it is UTF-16", origin, 1, "save it as UTF-8")
    else:
        try:
            text = source.removeprefix(b"\xef\xbb\xbf").decode()
        except UnicodeDecodeError as error:
            line = source.count(b"\n", 0, error.start) + 1
            why = f"the byte 0x{source[error.start]:02x} is not UTF-8"
            raise _error(why, origin, line, "save it as UTF-8") from None
    if (bad := _UNPRINTABLE.search(text)) is not None:
        raise _error(
            f"the character U+{ord(bad[0]):04X} has no place in YAML", origin, text.count("\n", 0, bad.start()) + 1
        )
    composer = _Composer(origin, MOST_VALUES * most // MOST_BYTES, secrets=secrets)
    try:
        value = composer.compose(yaml.parse(text, Loader=_PARSER))
    except yaml.MarkedYAMLError as error:
        mark: Any = error.problem_mark or error.context_mark
        raise _error(
            " ".join(filter(None, (error.context, error.problem))), origin, mark.line + 1 if mark else 1
        ) from None
    except yaml.YAMLError as error:
        raise _error(" ".join(str(error).split())[:200], origin, 1) from None
    return Document(value, origin, composer.lines)


def _error(why: str, origin: str, line: int, hint: str = "", path: str = "") -> UsageError:
    what = f"wrong value at {path} in" if path else "cannot read"
    return UsageError(f"{what} {origin}, line {line}", why, hint)


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


class _Anchored(NamedTuple):
    """A value that aliases may repeat, with the number of its values; `values` is 0 while it is being read."""

    value: Any = None
    values: int = 0
    height: int = 0


class _Composer:
    """Events to one value."""

    def __init__(self, origin: str, most_values: int, *, secrets: bool) -> None:
        self.lines: dict[int, dict[Any, int]] = {}
        self._origin, self._most_values, self._secrets = origin, most_values, secrets
        self._path: list[str] = []
        self._anchors: dict[str, _Anchored] = {}
        self._values = self._deepest = 0

    def compose(self, events: Iterator[Any]) -> Any:
        next(events)  # the stream's start
        value = None
        if isinstance(next(events), yaml.DocumentStartEvent):
            value = self._value(next(events), events)
            next(events)  # the document's end
            if isinstance(more := next(events), yaml.DocumentStartEvent):
                raise self._wrong(more, "a second document begins", "keep one in the file")
        return value

    def _value(self, event: Any, events: Iterator[Any]) -> Any:
        """The value that begins with `event`; consumes its events."""
        depth, before = len(self._path), self._values
        self._count(event, 1, depth)
        if isinstance(event, yaml.AliasEvent):
            found = self._anchors.get(event.anchor or "")
            if found is None or not found.values:
                why = "an alias stands within itself" if found else "no anchor of the alias stands before it"
                raise self._wrong(event, why)
            self._count(event, found.values, depth + found.height)
            self._deepest = max(self._deepest, depth + found.height)
            return found.value
        if event.tag is not None:
            raise self._wrong(event, "gpuwatch takes no tags", "write the value without `!`")
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored()
        deepest, self._deepest = self._deepest, depth
        if isinstance(event, yaml.ScalarEvent):
            value = self._scalar(event)
        elif isinstance(event, yaml.SequenceStartEvent):
            value = self._sequence(events)
        else:
            value = self._mapping(events)
        if event.anchor is not None:
            self._anchors[event.anchor] = _Anchored(value, self._values - before, self._deepest - depth)
        self._deepest = max(deepest, self._deepest)
        return value

    def _count(self, event: Any, values: int, depth: int) -> None:
        self._values += values
        if self._values > self._most_values:
            raise self._wrong(event, f"it has more than {self._most_values} values, aliases expanded")
        if depth > MOST_DEPTH:
            raise self._wrong(event, f"it is nested deeper than {MOST_DEPTH} levels")

    def _sequence(self, events: Iterator[Any]) -> list[Any]:
        value: list[Any] = []
        lines = self.lines[id(value)] = {}
        while not isinstance(event := next(events), yaml.SequenceEndEvent):
            lines[len(value)] = _line(event)
            self._path.append(f"[{len(value)}]")
            value.append(self._value(event, events))
            self._path.pop()
        return value

    def _mapping(self, events: Iterator[Any]) -> dict[Any, Any]:
        value: dict[Any, Any] = {}
        lines = self.lines[id(value)] = {}
        while not isinstance(event := next(events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
                raise self._wrong(event, "a list or a mapping is no key")
            key = self._value(event, events)
            if isinstance(key, list | dict):
                raise self._wrong(event, "a list or a mapping is no key")
            if isinstance(key, str) and (len(key) > LONGEST_KEY or "\n" in key):
                raise self._wrong(event, f"a key is one line of at most {LONGEST_KEY} characters")
            self._path.append(f".{key}")
            if key in value:
                raise self._wrong(event, f"the key {key} stands there twice, first in line {lines[key]}", "keep one")
            if key == "<<":
                raise self._wrong(event, "YAML 1.2 has no merge keys", "write the keys out")
            lines[key] = _line(event)
            value[key] = self._value(next(events), events)
            self._path.pop()
        return value

    def _scalar(self, event: Any) -> Any:
        text: str = event.value
        if (bad := _UNPRINTABLE.search(text)) is not None:  # written as an escape
            raise self._wrong(event, f"the character U+{ord(bad[0]):04X} has no place in a value")
        if not event.implicit[0]:  # in quotes, or a block
            return text
        if _NULL.fullmatch(text):
            return None
        if _BOOL.fullmatch(text):
            return text[0] in "tT"
        if _INT.fullmatch(text):
            return self._int(event)
        if _NOT_FINITE.fullmatch(text):
            raise self._wrong(event, f"{text} is no finite number")
        if _FLOAT.fullmatch(text):
            if len(text) > MOST_DIGITS or abs(number := float(text)) == float("inf"):
                raise self._wrong(event, f"the number is too large or too long; {MOST_DIGITS} digits are the most")
            return number
        return text

    def _int(self, event: Any) -> int:
        text: str = event.value
        if len(text) > MOST_DIGITS:
            raise self._wrong(event, f"a number of {len(text)} digits is too long; {MOST_DIGITS} are the most")
        if (led := _LEADING_ZERO.fullmatch(text)) is not None:
            octal = f", 0o{led[2]} for the octal {int(led[2], 8)}" if set(led[2]) <= set("01234567") else ""
            hint = f'write {led[1].strip("+")}{int(led[2])}{octal}, or "{text}" for text'
            if self._secrets:
                text, hint = "the number", "write it without, or in quotes for text"
            raise self._wrong(event, f"the zero in front of {text} makes it octal to some and decimal to others", hint)
        return int(text, 0)

    def _wrong(self, event: Any, why: str, hint: str = "") -> UsageError:
        path = "".join(self._path).removeprefix(".")
        shown = path if len(path) <= LONGEST_PATH else f"{path[: LONGEST_PATH - 1]}…"
        return _error(why, self._origin, _line(event), hint, shown)
