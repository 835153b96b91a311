"""Hosts on which checks fail: cluster."""

from tests.diagnose.broken import Broken

BROKEN: tuple[Broken, ...] = ()
