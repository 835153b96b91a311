"""Colours, widths and words: small decisions that every screen shares."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.cli.console.table import GAP, LONGEST, SHORTEST, Column, table
from gpuwatch.cli.console.terminal import ASCII, UNICODE, Terminal, use_color
from gpuwatch.cli.console.words import Words

WORDS = Words(UNICODE, now=1_000_000.0)


class Stream(io.StringIO):
    def __init__(self, tty: bool) -> None:
        super().__init__()
        self._tty = tty

    def isatty(self) -> bool:
        return self._tty


@pytest.mark.parametrize(
    ("mode", "variables", "tty", "wanted"),
    [
        ("auto", {}, True, True),
        ("auto", {}, False, False),
        ("auto", {"NO_COLOR": "1"}, True, False),
        ("auto", {"NO_COLOR": ""}, True, True),
        ("auto", {"NO_COLOR": "1", "FORCE_COLOR": "1"}, True, False),
        ("auto", {"FORCE_COLOR": "1"}, False, True),
        ("auto", {"FORCE_COLOR": "0"}, False, False),
        ("auto", {"TERM": "dumb"}, True, False),
        ("always", {"NO_COLOR": "1", "TERM": "dumb"}, False, True),
        ("never", {"FORCE_COLOR": "1"}, True, False),
    ],
)
def test_colour_follows_option_then_variables_then_terminal(monkeypatch, mode, variables, tty, wanted):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert use_color(mode, Stream(tty)) is wanted


def test_both_sets_of_glyphs_draw_as_many_levels():
    assert len(ASCII.sparks) == len(UNICODE.sparks)
    assert all(glyph.isascii() for glyph in ASCII)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (WORDS.ratio(0.984), "98%"),
        (WORDS.ratio(None), "–"),
        (WORDS.ratio(0.0), "0%"),
        (WORDS.size(0), "0 B"),
        (WORDS.size(1536), "1.5 KiB"),
        (WORDS.size(80 << 30), "80 GiB"),
        (WORDS.size(None), "–"),
        (WORDS.sizes(71 << 30, 80 << 30), "71/80 GiB"),
        (WORDS.sizes(None, 80 << 30), "–/80 GiB"),
        (WORDS.sizes(None, None), "–"),
        (WORDS.sizes(13 << 20, 80 << 30), "0/80 GiB"),
        (WORDS.draw(688.4, 700.0), "688/700 W"),
        (WORDS.draw(688.4, None), "688 W"),
        (WORDS.celsius(64.0), "64 °C"),
        (WORDS.clock(1.98e9), "1980 MHz"),
        (WORDS.joules(1800.0), "1800 J"),
        (WORDS.joules(3.6e6), "1.0 kWh"),
        (WORDS.ago(1_000_000.0 - 240), "4m ago"),
        (WORDS.ago(1_000_000.0 + 5), "0s ago"),
        (WORDS.ago(1_000_000.0 - 3 * 86400), "3d ago"),
        (WORDS.ago(None), "–"),
        (WORDS.flag(False), "no"),
        (WORDS.flag(None), "–"),
        (WORDS.clock_time(0.0), "1970-01-01 00:00:00Z"),
    ],
)
def test_people_read_units(said, wanted):
    assert said == wanted


@given(st.text(max_size=60), st.integers(4, 80), st.sampled_from(["middle", "end"]))
def test_a_cut_text_is_never_longer_than_its_place_and_a_short_one_is_left_alone(text, width, where):
    cut = WORDS.cut(text, width, where)
    assert len(cut) <= width
    assert cut == text if len(text) <= width else "…" in cut


def test_a_name_keeps_both_ends_and_a_sentence_its_beginning():
    assert WORDS.cut("llama-pretrain-worker-0", 11, "middle") == "llama…ker-0"
    assert WORDS.cut("The driver can no longer", 11, "end") == "The driver…"


COLUMNS = (
    Column("A", lambda row, _: row[0]),
    Column("B", lambda row, _: row[1], drop=1, right=True),
    Column("NAME", lambda row, _: row[2], shorten="middle"),
    Column("C", lambda row, _: row[3], drop=2),
    Column("W", lambda row, _: row[3], wide=True),
)
CELLS = st.text(st.characters(codec="ascii", categories=("L", "N")), max_size=40)
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS, CELLS), min_size=1, max_size=4)


@given(ROWS, st.integers(20, 200))
def test_a_table_fits_unless_what_may_not_go_is_too_long(rows, width):
    lines = table(COLUMNS, rows, WORDS, width=width)
    least = max(len("A"), *(len(row[0]) for row in rows)) + len(GAP) + SHORTEST
    assert max(line.cell_len for line in lines) <= max(width, least)


@given(ROWS)
def test_a_wide_table_has_every_cell_whole(rows):
    lines = [line.plain for line in table(COLUMNS, rows, WORDS, width=20, wide=True)]
    assert lines[0].split() == ["A", "B", "NAME", "C", "W"]
    assert all(cell in line for line, row in zip(lines[1:], rows, strict=True) for cell in row)


@pytest.mark.parametrize(("width", "left"), [(80, "A B NAME C"), (34, "A B NAME"), (24, "A NAME")])
def test_columns_go_in_the_order_of_their_rank(width, left):
    rows = [("1", "12345", "n" * 30, "cccccc")]
    assert table(COLUMNS, rows, WORDS, width=width)[0].plain.split() == left.split()


def test_a_name_of_a_megabyte_takes_no_more_than_a_bounded_cell():
    columns = (Column("NAME", lambda row, _: row, shorten="middle"), Column("NEXT", lambda row, _: "x"))
    lines = table(columns, ["a" * (1 << 20), "b"], WORDS, width=10**9, wide=True)
    assert [len(line.plain) for line in lines[1:]] == [LONGEST + len(GAP) + 1] * 2


def test_a_name_beyond_the_encoding_of_the_terminal_shows_as_escapes(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    Terminal("never").print("東京")
    assert stream.buffer.getvalue() == b"\\u6771\\u4eac\n"
