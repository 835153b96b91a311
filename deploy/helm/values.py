"""The values of the chart with what the comments in `values.yaml` say of each; see documented()."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

FILE = Path(__file__).parent / "gpuwatch/values.yaml"
_COMMENT = re.compile(r" *# (?P<text>.*)")
_KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z]\w*):")
_BEGIN = "-- "


class Value(NamedTuple):
    """One key: its path, its default, what its comment says."""

    path: tuple[str, ...]
    default: Any
    description: str

    @property
    def name(self) -> str:
        """As `helm --set` has it."""
        return ".".join(self.path)


def documented(text: str) -> Iterator[Value]:
    """Every key with a comment of its own, in the order of the file."""
    defaults = yaml.safe_load(text)
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        if found := _COMMENT.fullmatch(line):
            comment.append(found["text"])
        elif key := _KEY.match(line):
            path = [*path[: len(key["indent"]) // 2], key["key"]]
            if comment and comment[0].startswith(_BEGIN):
                yield Value(tuple(path), _at(defaults, path), " ".join(comment).removeprefix(_BEGIN))
            comment = []
        else:
            comment = []


def _at(value: Any, path: list[str]) -> Any:
    for key in path:
        value = value[key]
    return value
