"""Text as an attacker writes it: a record of any kind whose every free text carries control characters."""

import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

MARK = "HOSTILE"
CONTROLS = (
    "\x1b]0;owned\x07\x1b[2J\x1b[8m\x9b31m\x85\x00\x08\x0b\x0c\x7f\r\n\tROW\u202e\u2066\u200b\u200f\u2028\u2029\ufeff"
)
HOSTILE = f"{MARK}{CONTROLS}"
"""Window title, screen, concealed text, C1, a forged line, direction, zero width. JSON has no lone surrogates."""

OWN_STYLES = re.compile(r"\x1b\[(?:0|[1-5]|7|3[0-7]|9[0-7])(?:;(?:[1-5]|7|3[0-7]|9[0-7]))*m")
"""What the console itself writes for colours; concealed text (8) is not among it."""
OWN_MOVES = re.compile(r"\x1b\[(?:2K|1A|\?25[lh])|\r+(?=\n|\x1b)")
"""What a progress bar writes, and how a terminal ends lines."""


def hostile(record: T, spare: Iterable[str] = ()) -> T:
    """The record with HOSTILE behind each text and key that may be any text; `spare` keeps texts as they are."""
    builtins, kept = msgspec.to_builtins(record, str_keys=True), set(spare)
    while True:
        try:
            return msgspec.convert(_marked(builtins, kept), type(record), strict=False)
        except msgspec.ValidationError as error:
            kept.add(_text_at(builtins, str(error)))


def _marked(value: Any, kept: set[str]) -> Any:
    if isinstance(value, str):
        return value if value in kept else value + HOSTILE
    if isinstance(value, dict):
        return {key: _marked(item, kept) for key, item in value.items()}
    return [_marked(item, kept) for item in value] if isinstance(value, list | tuple) else value


def _text_at(value: Any, error: str) -> str:
    """The text that has to be one of a few, by the path in the error's message."""
    found = re.search(r"Invalid enum value '(.*?)HOSTILE", error)
    assert found, error
    return found[1]


def unsafe(text: str, *, tty: bool = False) -> set[str]:
    """Characters that no output may have."""
    plain = OWN_STYLES.sub("", OWN_MOVES.sub("", text)) if tty else text
    return {each for each in plain if not each.isprintable() and each != "\n"}
