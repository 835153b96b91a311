"""Hosts on which checks fail: gpus."""

from tests.diagnose.broken import Broken

BROKEN: tuple[Broken, ...] = ()
