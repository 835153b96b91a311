"""Ctrl-C while the probe is being started: cleaning up does not hide it behind an error of its own."""

import sys
import threading

import pytest

from gpuwatch.diagnose.gathering.collect import Collection


def test_an_interrupt_before_the_listener_has_started_can_be_cleaned_up_after(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: threading.Thread) -> None:
        raise KeyboardInterrupt

    collection = Collection()
    monkeypatch.setattr(sys, "executable", "/bin/true")  # the probe itself is not what this is about
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collection.probe(None)  # type: ignore[arg-type]
    collection.end()
    assert collection._process is not None
    assert collection._process.stdout is not None
    collection._process.stdout.close()
    assert collection._process.wait(90) == 0
