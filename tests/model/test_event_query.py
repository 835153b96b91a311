"""The query of `/api/v1/events`: what the client writes is what the agent reads, and nonsense is refused in words."""

from urllib.parse import parse_qs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.model.event import EVENT_KINDS, EVERYTHING, MAX_EVENTS, EventQuery, event_query, moment

QUERIES = st.builds(
    EventQuery,
    since=st.floats(min_value=0, max_value=1e11),
    limit=st.integers(1, MAX_EVENTS),
    kinds=st.lists(st.sampled_from(EVENT_KINDS), min_size=1, unique=True).map(tuple),
)


def fields(text: str) -> dict[str, tuple[str, ...]]:
    return {name: tuple(values) for name, values in parse_qs(text, keep_blank_values=True).items()}


@given(QUERIES)
def test_it_comes_as_it_was_sent(query: EventQuery) -> None:
    assert event_query(fields(query.text)) == query


def test_nothing_special_is_not_reported() -> None:
    assert EVERYTHING.text == ""
    assert event_query({}) == EVERYTHING


def test_kinds_may_be_repeated_or_listed() -> None:
    assert event_query(fields("kind=xid,sxid&kind=action&kind=xid")).kinds == ("xid", "sxid", "action")


@pytest.mark.parametrize(
    "text", ["1790000000.25", "2026-09-21T14:13:20.250Z", "2026-09-21T16:13:20.25+02:00", "2026-09-21T14:13:20.250"]
)
def test_times_are_unix_seconds_or_rfc_3339(text: str) -> None:
    assert moment(text) == 1_790_000_000.25


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("limit=0", "limit is 0; use a number from 1"),
        ("limit=2.5", "whole number"),
        ("limit=ten", "'ten'"),
        ("limit=nan", "limit is nan"),
        ("since=yesterday", "RFC"),
        ("since=inf", "since is 'inf'"),
        ("kind=panic", "unknown kind panic; use one of xid"),
    ],
)
def test_nonsense_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=r"use ") as refused:
        event_query(fields(text))
    assert says.replace("RFC", "2026-09-21T14:13:20Z") in str(refused.value)


@given(st.sampled_from(("since", "limit", "kind")), st.text(max_size=30))
def test_no_text_makes_it_fail_otherwise(name: str, text: str) -> None:
    says = "a query"
    try:
        event_query({name: (text,)})
    except ValueError as error:
        says = str(error)
    assert says
