"""Text from others: nothing unprintable is left, and what is printable stays as it is."""

import json
import shlex

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.text import json_text, number, shell_word, visible, visible_lines

ANY = st.text(st.characters())
"""Lone surrogates, too: a file's name may be any bytes."""


def test_each_kind_shows_as_its_escape():
    shown = {
        "\x1b[2J": r"\x1b[2J", "a\tb\r\n": r"a\tb\r\n", "\x7f\x9b": r"\x7f\x9b",
        "\u202e\u2066\u200f": r"\u202e\u2066\u200f",
        "\u200b\ufeff": r"\u200b\ufeff", "\u2028\u2029": r"\u2028\u2029",
        "\udc80": r"\udc80", "\U000e0041": r"\U000e0041",
        "Größe 80 GB · 東京": "Größe 80 GB · 東京",
    }  # fmt: skip
    assert {text: visible(text) for text in shown} == shown


@given(ANY)
def test_one_line_of_printable_characters_is_left(text):
    shown = visible(text)
    assert shown.isprintable()
    assert visible(shown) == shown
    assert shown.encode().decode() == shown


@pytest.mark.parametrize(
    ("text", "found"),
    [("0", 0), ("16", 16), ("9" * 18, 10**18 - 1), ("9" * 19, None), ("9" * 5000, None), ("-1", None), ("", None),
     (None, None), ("\u0663", None), ("1.5", None)],
)  # fmt: skip
def test_a_number_has_few_digits(text, found):
    assert number(text) == found


@given(ANY)
def test_lines_keep_their_ends(text):
    shown = visible_lines(text)
    assert shown.count("\n") == text.count("\n")
    assert shown.replace("\r\n", "").replace("\n", "").isprintable()


@given(st.text())
def test_json_means_the_same(text):
    encoded = json_text(msgspec.json.encode({text: [text]}))
    assert json.loads(encoded) == {text: [text]}
    assert encoded.isprintable()


@given(ANY)
def test_a_word_of_a_shell_is_one_word(text):
    assert shlex.split(shell_word(text)) == [visible(text)]
