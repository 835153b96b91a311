"""The state of the live view: history, sorting, filter; what each key does to it; and the keys of the terminal."""

import os
import re
import select
import sys
import termios
import time
import tty
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from gpuwatch.cli.console.terminal import Glyphs
from gpuwatch.cli.look.columns import power
from gpuwatch.cli.look.gather import process_workload
from gpuwatch.cli.look.items import GpuItem, ProcessItem
from gpuwatch.host.load import ProcessUse
from gpuwatch.model.view import View

Row = TypeVar("Row")

HISTORY, MOST_HISTORY = 24, 240
"""Views that a sparkline shows at least, and where the terminal is wide."""

SORTS: dict[str, Callable[[GpuItem], Any]] = {
    "gpu": lambda g: -g.index,
    "util": lambda g: g.utilization.gpu,
    "mem": lambda g: g.memory.used,
    "power": power,
    "temp": lambda g: g.temperature.gpu,
}
"""Name to value; the largest comes first, what is unknown last."""


class ProcessRow(NamedTuple):
    """A process on a GPU, and what it uses of the host; None: not known, or another machine."""

    item: ProcessItem
    host: ProcessUse | None = None


PROCESS_SORTS: dict[str, Callable[[ProcessRow], Any]] = {
    "gpu": lambda p: -p.item.gpu,
    "util": lambda p: p.item.utilization,
    "mem": lambda p: p.item.memory,
    "cpu": lambda p: p.host.cpu if p.host else None,
    "time": lambda p: p.host.seconds if p.host else None,
}
"""The same for processes."""

PROCESS_SCREENS = ("processes", "tree")


class TopState(msgspec.Struct, frozen=True, kw_only=True):
    """What the user has chosen. `editing`: keys go into the filter."""

    screen: Literal["gpus", "processes", "tree", "help"] = "gpus"
    sort: str = "gpu"
    process_sort: str = "gpu"
    reverse: bool = False
    filter: str = ""
    editing: bool = False
    done: bool = False


def _change(**values: Any) -> Callable[[TopState], TopState]:
    return lambda state: msgspec.structs.replace(state, **values)


def _reverse(state: TopState) -> TopState:
    return msgspec.structs.replace(state, reverse=not state.reverse)


def _sort(step: int) -> Callable[[TopState], TopState]:
    def turn(state: TopState) -> TopState:
        of_processes = state.screen in PROCESS_SCREENS
        field, names = ("process_sort", [*PROCESS_SORTS]) if of_processes else ("sort", [*SORTS])
        name = names[(names.index(getattr(state, field)) + step) % len(names)]
        return msgspec.structs.replace(state, **{field: name})

    return turn


def _turn_to(screen: Literal["processes", "tree"]) -> Callable[[TopState], TopState]:
    return lambda state: msgspec.structs.replace(state, screen="gpus" if state.screen == screen else screen)


KEYS: dict[str, Callable[[TopState], TopState]] = {
    "q": _change(done=True),
    "?": _change(screen="help"),
    "p": _turn_to("processes"),
    "tab": _turn_to("processes"),
    "t": _turn_to("tree"),
    "f": _change(editing=True),
    "/": _change(editing=True),
    "escape": _change(filter=""),
    "r": _reverse,
    "up": _reverse,
    "down": _reverse,
    "s": _sort(1),
    "right": _sort(1),
    "left": _sort(-1),
}
"""What each key does while no filter is being typed."""


def press(state: TopState, key: str) -> TopState:
    """The state after a key; an unknown key changes nothing."""
    replace = msgspec.structs.replace
    if state.screen == "help" and key != "q":
        return replace(state, screen="gpus")
    if not state.editing:
        act = KEYS.get(key)
        return act(state) if act else state
    if key == "enter":
        return replace(state, editing=False)
    if key == "escape":
        return replace(state, editing=False, filter="")
    if key == "backspace":
        return replace(state, filter=state.filter[:-1])
    return replace(state, filter=state.filter + key) if len(key) == 1 else state


def arranged(state: TopState, gpus: Sequence[GpuItem]) -> list[GpuItem]:
    """The GPUs to show, in order."""
    return _chosen(
        state, gpus, SORTS[state.sort], lambda g: (str(g.index), g.uuid, g.health.value, g.name or "", *g.users)
    )


def arranged_processes(state: TopState, rows: Sequence[ProcessRow]) -> list[ProcessRow]:
    """The processes to show, in order; the filter searches user, type, name, pid, pod or job, and command."""
    return _chosen(
        state,
        rows,
        PROCESS_SORTS[state.process_sort],
        lambda p: (
            *(
                str(each)
                for each in (p.item.pid, p.item.type, p.item.user, p.item.name, process_workload(p.item))
                if each
            ),
            p.host.command if p.host else "",
        ),
    )


def _chosen(
    state: TopState, rows: Sequence[Row], value: Callable[[Row], Any], texts: Callable[[Row], Sequence[str]]
) -> list[Row]:
    matching = [row for row in rows if any(state.filter.lower() in text.lower() for text in texts(row))]
    known = sorted((row for row in matching if value(row) is not None), key=value, reverse=not state.reverse)
    return known + [row for row in matching if value(row) is None]


class UtilizationHistory:
    """The last utilizations of every GPU, for sparklines."""

    def __init__(self) -> None:
        self._values: dict[str, deque[float | None]] = {}

    def add(self, view: View) -> None:
        """Add one View; a GPU that did not answer leaves a gap."""
        samples = {gpu.identity.uuid: gpu.utilization.gpu for gpu in view.snapshot.gpus}
        for status in view.snapshot.statuses:
            uuid = status.identity.uuid
            self._values.setdefault(uuid, deque(maxlen=MOST_HISTORY)).append(samples.get(uuid))

    def spark(self, gpu: GpuItem, glyphs: Glyphs, width: int = HISTORY) -> str:
        """The newest at the right; a gap where nothing was known."""
        levels = len(glyphs.sparks) - 1
        values = list(self._values.get(gpu.uuid, ()))[-width:]
        return "".join(" " if v is None else glyphs.sparks[max(1, round(v * levels))] for v in values).rjust(width)


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
    b"\t": "tab",
    b"\r": "enter",
    b"\n": "enter",
    b"\x7f": "backspace",
    b"\x08": "backspace",
}


_SEQUENCE = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O.)|\x1b|[^\x1b]", re.S)
"""An escape sequence, a lone Escape, or one byte of what is typed."""


class TerminalKeys:
    """Keys typed at `fd`; None: there is no keyboard."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd
        self._pending: deque[str] = deque()

    def wait(self, seconds: float) -> str | None:
        """The next key within `seconds`, None when there is none."""
        if not self._pending and self._fd is not None:
            readable, _, _ = select.select([self._fd], [], [], max(0.0, seconds))
            if readable:
                data = os.read(self._fd, 1024)
                if not data:
                    self._fd = None
                self._pending.extend(named(data))
        elif not self._pending:
            time.sleep(max(0.0, seconds))
        return self._pending.popleft() if self._pending else None


def named(data: bytes) -> list[str]:
    """Keys by name, or by the character they type; unknown sequences are skipped."""
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
def typed_keys() -> Iterator[TerminalKeys]:
    """Keys of stdin; the terminal's mode is restored at the end. Ctrl-C still interrupts."""
    if not sys.stdin.isatty():
        yield TerminalKeys(None)
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield TerminalKeys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
