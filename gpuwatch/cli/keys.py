"""Single keys from a terminal, without waiting for Enter."""

import os
import select
import sys
import termios
import tty
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


class Keys:
    """Keys typed at `fd`; None: nobody types."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def wait(self, seconds: float) -> str | None:
        """The next key within `seconds`, None when there is none. Unknown sequences are skipped."""
        readable, _, _ = select.select([] if self._fd is None else [self._fd], [], [], max(0.0, seconds))
        if not readable or self._fd is None:
            return None
        data = os.read(self._fd, 16)
        if not data:
            self._fd = None
        return named(data)


def named(data: bytes) -> str | None:
    """One key as a name, or as the character it types."""
    if data in _NAMES:
        return _NAMES[data]
    text = data.decode("utf-8", "ignore")
    return text[0] if text[:1].isprintable() and text else None


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
