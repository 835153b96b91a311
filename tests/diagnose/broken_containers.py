"""Hosts on which checks fail: containers."""

from tests.diagnose.broken import Broken

BROKEN: tuple[Broken, ...] = ()
