"""The standard streams of a child that a driver may keep for ever: its own pipe, and an end that nobody waits for."""

import os
import sys


def private_stdout() -> int:
    """The pipe to the parent, out of reach of whatever a library prints."""
    pipe = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return pipe


def let_go() -> None:
    """Close stdout and stderr for good. They are also the parent's: whoever reads its output to the end would wait for
    this process too, which may be inside the driver.
    """
    nothing = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nothing, stream.fileno())
