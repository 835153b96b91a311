"""From what should be in force to what has to be ordered: whatever is set and not wanted is given back."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from gpuwatch.model.setting import Knob
from gpuwatch.model.snapshot import Record
from gpuwatch.tuning.model.order import Order

Key = tuple[str, Knob]
"""A knob of a GPU, by its uuid."""


class Want(Record, frozen=True, kw_only=True):
    """What should be in force of one knob, hertz or watts. `value` None: nothing now, but something again in seconds.

    `before`: what was ordered last.
    """

    value: float | None
    before: float | None
    why: str
    pod_uid: str | None = None


class Told(NamedTuple):
    """A decision about one GPU, for the audit. `knob` None: no order goes with it. Empty texts: nothing is in force."""

    action: str  # tune | restore | yield | budget
    uuid: str
    knob: Knob | None = None
    before: str = ""
    after: str = ""
    why: str = ""


def orders(wanted: Mapping[Key, Want], held: Collection[Key], whys: Mapping[str, str]) -> Iterator[Order]:
    """First what is given back. `held`: what may be in force; `whys`: uuid -> why nothing is wanted of a GPU."""
    for uuid, knob in sorted(key for key in held if key not in wanted):
        yield Order(uuid=uuid, knob=knob, value=None, why=whys.get(uuid, "nobody uses it"))
    for (uuid, knob), want in sorted(wanted.items(), key=lambda item: item[0]):
        if want.value != want.before:
            keep = want.value is None
            yield Order(uuid=uuid, knob=knob, value=want.value, why=want.why, keep=keep, pod_uid=want.pod_uid)


def text(knob: Knob, value: float | None) -> str:
    """A setting for people; empty: none."""
    if value is None:
        return ""
    return f"{value / 1e6:.0f} MHz" if knob == "locked_clocks" else f"{value:.0f} W"
