"""Hosts on which checks fail: baseline."""

from tests.diagnose.broken import Broken

BROKEN: tuple[Broken, ...] = ()
