"""What the live view remembers: history, sorting, filter; and what each key does to it. No terminal in here."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gpuwatch.cli.console.terminal import Glyphs
from gpuwatch.cli.look.columns import power
from gpuwatch.cli.look.items import GpuItem
from gpuwatch.model.view import View

HISTORY = 24
"""Looks that a sparkline shows."""

SORTS: dict[str, Callable[[GpuItem], Any]] = {
    "gpu": lambda g: -g.index,
    "util": lambda g: g.utilization.gpu,
    "mem": lambda g: g.memory.used,
    "power": power,
    "temp": lambda g: g.temperature.gpu,
}
"""Name to value; the largest comes first, what is unknown last."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What the person at the keys has chosen. `editing`: keys go into the filter."""

    sort: str = "gpu"
    reverse: bool = False
    filter: str = ""
    editing: bool = False
    done: bool = False


def press(state: State, key: str) -> State:
    """The state after a key; one that means nothing changes nothing."""
    if state.editing:
        return _edit(state, key)
    act = KEYS.get(key)
    return act(state) if act else state


def _change(**values: Any) -> Callable[[State], State]:
    return lambda state: msgspec.structs.replace(state, **values)


def _reverse(state: State) -> State:
    return msgspec.structs.replace(state, reverse=not state.reverse)


def _sort(step: int) -> Callable[[State], State]:
    names = list(SORTS)

    def act(state: State) -> State:
        return msgspec.structs.replace(state, sort=names[(names.index(state.sort) + step) % len(names)])

    return act


KEYS: dict[str, Callable[[State], State]] = {
    "q": _change(done=True),
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


def _edit(state: State, key: str) -> State:
    replace = msgspec.structs.replace
    if key == "enter":
        return replace(state, editing=False)
    if key == "escape":
        return replace(state, editing=False, filter="")
    if key == "backspace":
        return replace(state, filter=state.filter[:-1])
    return replace(state, filter=state.filter + key) if len(key) == 1 else state


def arranged(state: State, gpus: Sequence[GpuItem]) -> list[GpuItem]:
    """The GPUs to show, in order."""
    value = SORTS[state.sort]
    matching = [gpu for gpu in gpus if _matches(gpu, state.filter.lower())]
    known = sorted((g for g in matching if value(g) is not None), key=value, reverse=not state.reverse)
    return known + [gpu for gpu in matching if value(gpu) is None]


def _matches(gpu: GpuItem, text: str) -> bool:
    words = (str(gpu.index), gpu.uuid, gpu.health.value, gpu.name or "", *gpu.users)
    return any(text in word.lower() for word in words)


class History:
    """The last utilizations of every GPU, for sparklines."""

    def __init__(self) -> None:
        self._values: dict[str, deque[float | None]] = {}

    def remember(self, view: View) -> None:
        """Add one look; a GPU that did not answer leaves a gap."""
        samples = {gpu.identity.uuid: gpu.utilization.gpu for gpu in view.snapshot.gpus}
        for status in view.snapshot.statuses:
            uuid = status.identity.uuid
            self._values.setdefault(uuid, deque(maxlen=HISTORY)).append(samples.get(uuid))

    def spark(self, gpu: GpuItem, glyphs: Glyphs) -> str:
        """The newest at the right; a gap where nothing was known."""
        levels = len(glyphs.sparks) - 1
        values = self._values.get(gpu.uuid, ())
        return "".join(" " if v is None else glyphs.sparks[max(1, round(v * levels))] for v in values).rjust(HISTORY)
