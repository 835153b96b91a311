"""What the demo's narrator says about the driver's reports."""

import time

import pytest

from gpuwatch.cli.demo.narrator import LINE_SECONDS, is_incomplete, xid_sentence
from gpuwatch.model.xid import XidEvent


def event(xid: int, recovery: int | None = None, age: float = 0.0) -> XidEvent:
    return XidEvent(at=time.time() - age, source="nvml", uuid="GPU-3", xid=xid, recovery=recovery)


@pytest.mark.parametrize(
    ("recovery", "words"),
    [
        (0, "asks for nothing any more"),
        (1, "asks for this: reset the GPU"),
        (None, "something else"),
        (99, "something"),
    ],
)
def test_an_advice_of_the_driver_is_reported_by_what_it_asks_for(recovery: int | None, words: str) -> None:
    told = xid_sentence(event(154, recovery))
    assert words in told
    assert "Not a fault" not in told


def test_an_advice_waits_for_the_line_that_has_it_but_not_for_long() -> None:
    assert is_incomplete(event(154))
    assert not is_incomplete(event(154, age=2 * LINE_SECONDS))
    assert not is_incomplete(event(154, recovery=0))
    assert not is_incomplete(event(79))
