"""YAML of others: read by YAML 1.2's core schema within bounds, or refused with file, line and key."""

import contextlib
import os
import time
from pathlib import Path

import pytest
import yaml

from gpuwatch.config import load
from gpuwatch.config import yaml as loader
from gpuwatch.config.yaml import MOST_BYTES, decode, document, read
from gpuwatch.model.errors import UsageError

VALUES = {
    "yes": "yes", "no": "no", "on": "on", "off": "off", "true": True, "FALSE": False, "~": None, "": None, "null": None,
    "1:30": "1:30", "2026-13-01": "2026-13-01", "2026-01-01": "2026-01-01", "1_000": "1_000", "0x1F": 31, "0o17": 15,
    "-0": 0, "+3": 3, "0.5": 0.5, ".5": 0.5, "1e3": 1000.0, "22:00": "22:00", "1.2.3": "1.2.3", "'090'": "090",
    "{a: &x [1], b: *x}": {"a": [1], "b": [1]}, "0b11": "0b11", "5,5": "5,5", "=": "=", "nan": "nan",
}  # fmt: skip
"""Written -> meant, by YAML 1.2's core schema."""


@pytest.mark.parametrize("parser", ["SafeLoader", "CSafeLoader"])
@pytest.mark.parametrize("text", VALUES)
def test_a_value_means_what_yaml_1_2_says(text: str, parser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_PARSER", getattr(yaml, parser))
    found = decode(f"a: {text}\n")["a"]
    assert (found, type(found)) == (VALUES[text], type(VALUES[text]))


BOMB = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
TOWER = "a0: &a0 [[[[[[[[1]]]]]]]]\n" + "".join(f"a{n}: &a{n} [[[[[[[[*a{n - 1}]]]]]]]]\n" for n in range(1, 9))
REFUSED = {
    "a:\n  b: 090": ("a.b", 2, "write 90"),
    "a: 0600": ("a", 1, "write 600, 0o600 for the octal 384"),
    "a: -0900": ("a", 1, "write -900"),
    "a: 00": ("a", 1, "write 0,"),
    "a: .inf": ("a", 1, "no finite number"),
    "a: -.INF": ("a", 1, "no finite number"),
    "a: [1, .nan]": ("a[1]", 1, "no finite number"),
    "a: 1e999": ("a", 1, "too large"),
    f"a: {'9' * 5000}": ("a", 1, "5000 digits"),
    f"a: 0x{'f' * 5000}": ("a", 1, "too long"),
    f"a: 1.{'0' * 5000}": ("a", 1, "too long"),
    "x: 1\na: 1\nb: 2\na: 3": ("a", 4, "first in line 2"),
    "1: a\n0x1: b": ("1", 2, "twice"),
    BOMB: ("a4[5]", 5, "aliases expanded"),
    TOWER: ("a3", 4, "nested deeper"),
    "a: &x [*x]": ("a[0]", 1, "within itself"),
    "a: *x": ("a", 1, ""),
    "[" * 2000: ("", 1, "nested deeper"),
    "- " * 2000: ("", 1, "nested deeper"),
    "a: !!python/object/apply:os.system [id]": ("a", 1, "no tags"),
    "a: !!str 5": ("a", 1, "no tags"),
    "a: ! 5": ("a", 1, "no tags"),
    "a: 1\n---\nb: 2": ("", 2, "second document"),
    "d: &d {a: 1}\nb: {<<: *d}": ("b.<<", 2, "no merge keys"),
    "? [a]\n: 1": ("", 1, "no key"),
    "a: \0": ("", 1, "U+0000"),
    "a: 1\nb: \x1b]0;": ("", 2, "U+001B"),
    'a: "\\0"': ("a", 1, "U+0000"),
    'a: "\\e[2J"': ("a", 1, "U+001B"),
    'a: "\\ud800"': ("", 1, ""),
    "a: \ud800": ("", 1, "U+D800"),
    "a: 1\n\tb: 2": ("", 2, ""),
    f"{'k' * 300}: 1": ("", 1, "a key is one line"),
    "a: 'x": ("", 1, ""),
    b"a: 1\nb: \xff": ("", 2, "not UTF-8"),
    "a: 1".encode("utf-16"): ("", 1, "UTF-16"),
    b"\x7fELF\x02\x01\x01": ("", 1, "U+007F"),
}
"""Text -> key, line and words of the error."""


@pytest.mark.parametrize("parser", ["SafeLoader", "CSafeLoader"])
@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:30]))
def test_what_is_doubtful_or_endless_is_refused_with_line_and_key(
    text: str | bytes, parser: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "_PARSER", getattr(yaml, parser))
    key, line, words = REFUSED[text]
    with pytest.raises(UsageError) as caught:
        decode(text, "FILE")
    assert words in str(caught.value)
    if words:
        assert f"FILE, line {line}" in caught.value.what
    assert not key or f"wrong value at {key}" in caught.value.what


def test_what_may_be_secret_is_not_quoted() -> None:
    with pytest.raises(UsageError) as caught:
        document("password: 01234567", "FILE", secrets=True)
    assert "password" in str(caught.value)
    assert "1234567" not in str(caught.value)


def test_a_byte_order_mark_and_a_directive_are_fine() -> None:
    assert decode(b"\xef\xbb\xbf%YAML 1.2\n---\na: 1\n...\n") == {"a": 1}
    assert decode(b"") is None


def test_the_line_of_a_key_is_known_through_lists_dots_and_aliases() -> None:
    found = document("a:\n  b.c: {d: 1}\n  l:\n    - x\n    - y: [1,\n      2]\nz: 1\n", "F")
    lines = {"a": 1, "a.b.c": 2, "a.b.c.d": 2, "a.l[0]": 4, "a.l[1].y[1]": 6, "$.z": 7, "a.l[1].none": 5}
    assert {path: found.at(path) for path in lines} == {path: f"F, line {line}" for path, line in lines.items()}
    assert found.at("none") == "F"


def not_a_file(name: str, folder: Path) -> Path:
    path = folder / name
    if name == "fifo":
        os.mkfifo(path)
    elif name == "folder":
        path.mkdir()
    elif name == "loop":
        path.symlink_to(path)
    elif name == "endless":
        path.symlink_to("/dev/zero")
    elif name == "large":
        path.write_bytes(b"#" * (MOST_BYTES + 1))
    elif name == "nul\0":
        return Path(f"{folder}/nul\0")
    return path


@pytest.mark.parametrize("name", ["fifo", "folder", "loop", "endless", "large", "missing", "nul\0", "n" * 300])
def test_only_a_regular_file_within_the_bound_is_read(name: str, tmp_path: Path) -> None:
    """A FIFO without a writer keeps nobody waiting."""
    with pytest.raises(UsageError, match="cannot read"):
        read(not_a_file(name, tmp_path), "configuration", "--config")


WORST = [
    "[" + "a," * ((1 << 19) - 1),
    "- a\n" * (1 << 18),
    "remediation: {budget: {node_selector: '" + "a," * 100_000 + "'}}",
    "remediation: {maintenance: [" + "{start: 22:00, end: 23:00}," * 3300 + "]}",
    "remediation: {drain: {protected_namespaces: [" + "x," * 19_990 + "]}}",
    "#" * (1 << 20),
    "a: '" + "\n" * 250_000 + "'",
    BOMB,
]


@pytest.mark.parametrize("text", WORST, ids=lambda text: repr(text[:24]))
def test_any_mebibyte_is_answered_soon(text: str, tmp_path: Path) -> None:
    """Within a second on a machine of its own, in CPU time; the bound here is for a busy one."""
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(text)
    begun = time.thread_time()
    with contextlib.suppress(UsageError):
        load(path)
    assert time.thread_time() - begun < 3.0
