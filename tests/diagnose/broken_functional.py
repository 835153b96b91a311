"""Hosts on which checks fail: functional."""

from tests.diagnose.broken import Broken

BROKEN: tuple[Broken, ...] = ()
