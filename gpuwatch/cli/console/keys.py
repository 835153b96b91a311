"""Single keys from a terminal, without waiting for Enter."""

import os
import re
import select
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

_NAMES = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b": "escape",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
}


_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.)|\x1b|[^\x1b]", re.S)
"""An escape sequence, a lone Escape, or one byte of what is typed."""


class Keys:
    """Keys typed at `fd`; None: nobody types."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._typed: deque[str] = deque()

    def wait(self, seconds: float) -> str | None:
        """The next key within `seconds`, None when there is none."""
        if not self._typed and self._fd is not None:
            readable, _, _ = select.select([self._fd], [], [], max(0.0, seconds))
            if readable:
                self._read(self._fd)
        elif not self._typed:
            time.sleep(max(0.0, seconds))
        return self._typed.popleft() if self._typed else None

    def _read(self, fd: int) -> None:
        data = os.read(fd, 1024)
        if not data:
            self._fd = None
        self._typed.extend(named(data))


def named(data: bytes) -> list[str]:
    """Keys by name, or by the character they type; sequences that mean nothing to us are skipped."""
    keys: list[str] = []
    typed = b""
    for part in _SEQUENCE.findall(data):
        if part in _NAMES or part.startswith(b"\x1b"):
            keys += [*_characters(typed), *([_NAMES[part]] if part in _NAMES else [])]
            typed = b""
        else:
            typed += part
    return [*keys, *_characters(typed)]


def _characters(data: bytes) -> list[str]:
    return [character for character in data.decode("utf-8", "ignore") if character.isprintable()]


@contextmanager
def typed() -> Iterator[Keys]:
    """Keys of stdin; the terminal gets back its mode at the end. Ctrl-C still interrupts."""
    if not sys.stdin.isatty():
        yield Keys(None)
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
