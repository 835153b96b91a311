"""Hosts on which checks fail: machine."""

from tests.diagnose.broken import Broken

BROKEN: tuple[Broken, ...] = ()
