"""Which power limits are in force, as far as the budget loop knows: what was read, what was asked, what may still come.

A View tells a limit late: the agent asks for the configured one with every fifth sample. So after a write the hand's
answer counts until a sample must have seen it, and of two answers the higher one.
"""

import math
from collections.abc import Iterable, Iterator, Mapping

from msgspec.structs import replace

from gpuwatch.model.pci import pci_key
from gpuwatch.model.setting import Actuation, Setting
from gpuwatch.model.snapshot import Gpu, Record, Snapshot
from gpuwatch.tuning.gates.conflict import YIELD_SECONDS
from gpuwatch.tuning.model.order import Board, Outcome, Turned
from gpuwatch.tuning.power_budget.write_order import InForce

LATE_SAMPLES = 6
"""The so-manieth sample after a write tells of it; in those before, the configured limit may be one of before."""

GRACE_SECONDS = 10.0
"""A GPU that is not read for so long still has the limit it had; meanwhile nobody gets more."""

FORGET_SECONDS = 600.0
"""A GPU that neither the View nor the record names is gone: it was taken out, or given to a virtual machine."""

RETRY_SECONDS = 30.0
"""What was not written is tried again at the next share."""


class Limit(Record, frozen=True, kw_only=True):
    """One GPU, watts. `watts`: newest known; `floor`, `most`: the least and the most it could have; None: not known.

    `unread`: monotonic seconds of the first View without it, None: the newest has it. `at`: unix seconds of the newest
    sample, `turned`: of our newest write, None: samples tell of it by now; `looks`: samples since then.
    """

    watts: float | None = None
    floor: float | None = None
    most: float | None = None
    unread: float | None = None
    at: float | None = None
    turned: float | None = None
    looks: int = 0


class Limits(Record, frozen=True, kw_only=True):
    """All GPUs, by uuid. `asked`: watts ordered, not answered yet; `failed`: watts that did not show, and may still
    come; `rests`: monotonic seconds until which a GPU is not asked.
    """

    known: Mapping[str, Limit] = {}
    asked: Mapping[str, float] = {}
    failed: Mapping[str, float] = {}
    rests: Mapping[str, float] = {}

    def is_resting(self, uuid: str, now: float) -> bool:
        """Whether nothing is to be asked of it now."""
        return now < self.rests.get(uuid, now)

    def in_grace(self, now: float) -> bool:
        """Whether a GPU was read a moment ago and is not now."""
        return any(limit.unread is not None and now - limit.unread < GRACE_SECONDS for limit in self.known.values())


class Times(Record, frozen=True, kw_only=True):
    """Now, in monotonic and in unix seconds."""

    now: float
    at: float


def recorded(actuation: Actuation) -> dict[str, Setting]:
    """The power limits that gpuwatch has changed, by uuid."""
    return {setting.uuid: setting for setting in actuation.settings if setting.knob == "power_limit"}


def adopted(limits: Limits, settings: Mapping[str, Setting]) -> Limits:
    """After a restart: whatever an earlier life may have asked for may be in force, or still come."""
    return replace(limits, failed={uuid: max(setting.applied) for uuid, setting in settings.items()})


def answered(limits: Limits, turned: Iterable[Turned], now: float, at: float) -> Limits:
    """Take in what became of all that was asked; no answer is a silent driver's. `at`: unix seconds of now."""
    answers = {each.order.uuid: each for each in turned if each.order.knob == "power_limit"}
    known, failed, rests = dict(limits.known), dict(limits.failed), dict(limits.rests)
    for uuid, watts in limits.asked.items():
        answer = answers.get(uuid)
        outcome = Outcome.SILENT if answer is None else answer.outcome
        if answer is not None and outcome is Outcome.DONE:
            in_force = watts if answer.in_force is None else answer.in_force
            known[uuid] = replace(known.get(uuid, Limit()), watts=in_force, turned=at, looks=0)
            failed.pop(uuid, None)
            continue
        if outcome in (Outcome.FAILED, Outcome.SILENT):
            failed[uuid] = max(watts, failed.get(uuid, watts))
        rests[uuid] = now + (YIELD_SECONDS if outcome is Outcome.FOREIGN else RETRY_SECONDS)
    rests = {uuid: until for uuid, until in rests.items() if now < until}
    return Limits(known=known, failed=failed, rests=rests)


def looked(
    limits: Limits, snapshot: Snapshot, boards: Mapping[str, Board], settings: Mapping[str, Setting], times: Times
) -> Limits:
    """Take in a fresh View. Whom it does not show still counts, and so do GPUs of which only the bus knows."""
    samples = {gpu.identity.uuid: gpu for gpu in snapshot.gpus}
    named = {status.identity.uuid for status in snapshot.statuses} | samples.keys()
    kept = {
        uuid
        for uuid, limit in limits.known.items()
        if uuid in named or limit.unread is None or times.now - limit.unread < FORGET_SECONDS
    }
    everybody = [uuid for uuid in sorted({*named, *settings, *kept}) if not uuid.startswith(HIDDEN)]
    absent = len(everybody) - len(named)
    known = {
        uuid: _seen(limits.known.get(uuid, Limit()), samples.get(uuid), boards.get(uuid), settings.get(uuid), times)
        for uuid in everybody
    }
    since = {uuid: limit.unread for uuid, limit in limits.known.items()}
    for name in _hidden(snapshot)[absent:]:
        known[name] = Limit(unread=since.get(name) or times.now - GRACE_SECONDS)
    return replace(limits, known=known, failed={uuid: watts for uuid, watts in limits.failed.items() if uuid in known})


HIDDEN = "hidden "


def _hidden(snapshot: Snapshot) -> list[str]:
    """GPUs that draw, and of which nobody knows how much they may: NVML does not show them, or they do not tell."""
    shown = {pci_key(status.identity.pci_bus_id) for status in snapshot.statuses}
    bus = [address for address in snapshot.bus or () if pci_key(address) not in shown]
    names = [*bus, *(f"index {index}" for index in sorted(snapshot.unanswered))]
    return [HIDDEN + name for name in names[: max(len(bus), len(snapshot.unanswered))]]


def _seen(before: Limit, gpu: Gpu | None, board: Board | None, setting: Setting | None, times: Times) -> Limit:
    limit = before if gpu is None else _read(before, gpu, times.at)
    tops = [limit.most, limit.watts, *_tops(gpu, board), *((setting.original, *setting.applied) if setting else ())]
    floors = [gpu.power.limit_min if gpu else None, board.limit_min if board else None, before.floor]
    is_read = gpu is not None and (limit.turned is not None or _configured(gpu) is not None)
    return replace(
        limit,
        floor=next(_sound(floors), None),
        most=max(_sound(tops), default=None),
        unread=None if is_read else times.now if before.unread is None else before.unread,
    )


def _read(before: Limit, gpu: Gpu, at: float) -> Limit:
    """The enforced limit, never above the configured one, is asked for with every sample: it tells of a rise first."""
    turned = None if before.turned is None else min(before.turned, at)  # a clock that was set back
    enforced = next(_sound([gpu.power.limit_enforced]), 0.0)
    looks = before.looks + (turned is not None and turned < gpu.at != before.at)
    if turned is not None and before.watts is not None and looks < LATE_SAMPLES:
        watts = before.watts if gpu.at == before.at else max(before.watts, enforced)  # that may be of after the write
        return replace(before, watts=watts, at=gpu.at, turned=turned, looks=looks)
    configured = _configured(gpu)
    known = before.watts if configured is None else max(configured, enforced)
    return replace(before, watts=known, at=gpu.at, turned=None, looks=0)


def _configured(gpu: Gpu) -> float | None:
    return next(_sound([gpu.power.limit_configured]), None)


def _tops(gpu: Gpu | None, board: Board | None) -> tuple[float | None, ...]:
    tops: tuple[float | None, ...] = (gpu.power.limit_max, gpu.power.limit_default) if gpu else ()
    return (*tops, board.limit_max, board.limit_default, board.limit) if board else tops


def _sound(watts: Iterable[float | None]) -> Iterator[float]:
    """Those that are known and can be."""
    return (each for each in watts if each is not None and 0 < each < math.inf)


def in_force(limits: Limits, now: float) -> tuple[InForce, ...] | None:
    """Every GPU that may draw of the budget. None: of one it cannot even be guessed what it may draw."""
    highest = max(_sound(limit.most for limit in limits.known.values()), default=None)
    if highest is None and limits.known:
        return None
    return tuple(_counted(uuid, limit, highest or 0.0, now) for uuid, limit in limits.known.items())


def _counted(uuid: str, limit: Limit, highest: float, now: float) -> InForce:
    known = limit.most or 0.0
    most = known if known and limit.floor is not None else max(highest, known)  # a record alone tells no board's most
    if limit.unread is None:
        return InForce(uuid=uuid, watts=limit.watts, most=most)
    is_known = limit.watts is not None and now - limit.unread < GRACE_SECONDS
    return InForce(uuid=uuid, watts=None, most=limit.watts if is_known and limit.watts is not None else most)
