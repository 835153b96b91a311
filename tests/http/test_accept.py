"""Content negotiation answers what real clients ask, and survives whatever they send."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.http.message import CONTENT_TYPES, accepts_gzip, negotiate_format

PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, "text"),
        ("", "text"),
        ("*/*", "text"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text"),
        ("application/openmetrics-text", "openmetrics"),
        (PROMETHEUS_2, "openmetrics"),
        (PROMETHEUS_3, "openmetrics"),
        ("text/plain;version=0.0.4", "text"),
        ("text/plain;q=0.9, application/openmetrics-text;q=0.3", "text"),
        ("application/openmetrics-text;version=2.0.0, text/plain;q=0.1", "text"),
        ("application/openmetrics-text;q=0", "text"),
        ("application/openmetrics-text;q=nan, */*;q=0.1", "text"),
        ("APPLICATION/OpenMetrics-Text; Version=1.0.0", "openmetrics"),
    ],
)
def test_format(accept, expected):
    assert negotiate_format(accept) == expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, False),
        ("gzip", True),
        ("deflate, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("*", True),
        ("*;q=0", False),
        ("gzip;q=0, *;q=1", False),
        ("identity", False),
        ("gzip;q=abc", False),
    ],
)
def test_gzip(header, expected):
    assert accepts_gzip(header) is expected


def test_no_header_costs_more_than_one_of_a_thousand_characters():
    """Each element costs microseconds of the thread that serves all clients."""
    assert negotiate_format("," * 1_000 + "application/openmetrics-text") == "text"
    assert negotiate_format("," * 900 + "application/openmetrics-text") == "openmetrics"
    assert not accepts_gzip("," * 1_024 + "gzip")


@given(st.text())
def test_any_text_gets_an_answer(header):
    assert negotiate_format(header) in CONTENT_TYPES
    assert accepts_gzip(header) in (True, False)
