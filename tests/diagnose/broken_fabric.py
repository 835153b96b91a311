"""Hosts on which checks fail: fabric."""

from tests.diagnose.broken import Broken

BROKEN: tuple[Broken, ...] = ()
