"""Which power limits are in force, and in which order new ones are written so that their sum never exceeds the budget.

A View shows a limit late: the agent reads the configured one with every fifth sample. So after a write the driver's
answer counts until a sample must show it, and of two answers the higher one. The tuner may die after any write,
and any write may fail: no GPU gets more before others were read back with less.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec.structs import replace

from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import Gpu, Record, Snapshot
from gpuwatch.tuning.gates.conflict import YIELD_SECONDS
from gpuwatch.tuning.model.setting import Actuation, ApplyResult, GpuCapabilities, OrderOutcome, Setting

UNIT_WATTS = 0.001
"""Drivers take milliwatts."""

DEAD_BAND_WATTS = 5.0
"""While the budget is kept, nothing is written for less: a draw's noise is no reason to act."""


class InForce(Record, frozen=True, kw_only=True):
    """A GPU's limit, watts, as read from the driver. None: it could not be read; `most`: what it could be at worst."""

    uuid: str
    watts: float | None
    most: float

    @property
    def at_worst(self) -> float:
        """What it counts for."""
        return self.most if self.watts is None else self.watts


class LimitWrite(Record, frozen=True, kw_only=True):
    """One power limit to set, watts; `before` is what is in force."""

    uuid: str
    before: float
    watts: float


def steps(
    now: Sequence[InForce], targets: Mapping[str, float], budget: float, failed: Mapping[str, float] | None = None
) -> tuple[LimitWrite, ...]:
    """What is left to write, in order, if each write succeeds; empty: done, or nothing may be written.

    `now`: every GPU that may draw of the budget, those that are not tuned included. `failed`: watts that were set
    and did not show when read back. They may still take effect, so such a GPU counts for them, and is left alone
    until the caller drops it; after a restart the record of settings has them. An unread GPU is never written.
    """
    lost = failed or {}
    total = sum(max(each.at_worst, lost.get(each.uuid, 0.0)) for each in now)
    decisions = [
        LimitWrite(uuid=each.uuid, before=each.watts, watts=targets[each.uuid])
        for each in now
        if each.watts is not None and each.uuid in targets and each.uuid not in lost
    ]
    if total <= budget and all(abs(_rise(move)) < DEAD_BAND_WATTS for move in decisions):
        return ()
    plan = []
    for move in sorted(decisions, key=lambda move: (_rise(move) > 0, -abs(_rise(move)), move.uuid)):
        allowed = min(move.watts, move.before + max(0.0, budget - total)) if _rise(move) > 0 else move.watts
        granted = LimitWrite(uuid=move.uuid, before=move.before, watts=allowed)
        if abs(_rise(granted)) >= UNIT_WATTS:
            plan.append(granted)
            total += _rise(granted)
    return tuple(plan)


def _rise(move: LimitWrite) -> float:
    return move.watts - move.before


LATE_SAMPLES = 6
"""Number of the first sample that surely shows a write; the ones before may show the earlier configured limit."""

GRACE_SECONDS = 10.0
"""A GPU that is not read for so long still has the limit it had; meanwhile no GPU gets more."""

REMOVED_SECONDS = 600.0
"""A GPU that neither the View nor the record names for so long is gone: removed, or assigned to a virtual machine."""

RETRY_SECONDS = 30.0
"""What was not written is tried again at the next share."""


class KnownLimit(Record, frozen=True, kw_only=True):
    """One GPU, watts. `watts`: newest known; `floor`, `most`: the least and the most it could have; None: not known.

    `unread`: monotonic seconds of the first View without it, None: the newest has it. `at`: unix seconds of the newest
    sample, `written_at`: of our newest write, None: samples show it by now; `samples_since`: samples since then.
    """

    watts: float | None = None
    floor: float | None = None
    most: float | None = None
    unread: float | None = None
    at: float | None = None
    written_at: float | None = None
    samples_since: int = 0


class KnownLimits(Record, frozen=True, kw_only=True):
    """All GPUs, by uuid. `ordered`: watts ordered, without a result yet; `failed`: watts that did not show, and may
    still take effect; `cooldowns`: monotonic seconds until which a GPU gets no order.
    """

    known: Mapping[str, KnownLimit] = {}
    ordered: Mapping[str, float] = {}
    failed: Mapping[str, float] = {}
    cooldowns: Mapping[str, float] = {}

    def in_cooldown(self, uuid: str, now: float) -> bool:
        """Whether it gets no order now."""
        return now < self.cooldowns.get(uuid, now)

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


def with_results(limits: KnownLimits, results: Iterable[ApplyResult], now: float, at: float) -> KnownLimits:
    """Take in the results of all orders; a missing one counts as a timeout. `at`: unix seconds of now."""
    by_uuid = {each.order.uuid: each for each in results if each.order.knob == "power_limit"}
    known, failed, cooldowns = dict(limits.known), dict(limits.failed), dict(limits.cooldowns)
    for uuid, watts in limits.ordered.items():
        result = by_uuid.get(uuid)
        outcome = OrderOutcome.TIMEOUT if result is None else result.outcome
        if result is not None and outcome is OrderOutcome.DONE:
            in_force = watts if result.in_force is None else result.in_force
            known[uuid] = replace(known.get(uuid, KnownLimit()), watts=in_force, written_at=at, samples_since=0)
            failed.pop(uuid, None)
            continue
        if outcome in (OrderOutcome.FAILED, OrderOutcome.TIMEOUT):
            failed[uuid] = max(watts, failed.get(uuid, watts))
        cooldowns[uuid] = now + (YIELD_SECONDS if outcome is OrderOutcome.FOREIGN else RETRY_SECONDS)
    cooldowns = {uuid: until for uuid, until in cooldowns.items() if now < until}
    return KnownLimits(known=known, failed=failed, cooldowns=cooldowns)


def with_snapshot(
    limits: KnownLimits,
    snapshot: Snapshot,
    capabilities: Mapping[str, GpuCapabilities],
    settings: Mapping[str, Setting],
    times: Times,
) -> KnownLimits:
    """Take in a fresh View. A GPU that it does not show still counts, and so does one that only the bus lists."""
    samples = {gpu.identity.uuid: gpu for gpu in snapshot.gpus}
    named = {status.identity.uuid for status in snapshot.statuses} | samples.keys()
    kept = {
        uuid
        for uuid, limit in limits.known.items()
        if uuid in named or limit.unread is None or times.now - limit.unread < REMOVED_SECONDS
    }
    uuids = [uuid for uuid in sorted({*named, *settings, *kept}) if not uuid.startswith(HIDDEN)]
    absent = len(uuids) - len(named)
    known = {
        uuid: _merged(
            limits.known.get(uuid, KnownLimit()), samples.get(uuid), capabilities.get(uuid), settings.get(uuid), times
        )
        for uuid in uuids
    }
    since = {uuid: limit.unread for uuid, limit in limits.known.items()}
    # GPUs that draw power up to an unknown limit: NVML does not list them, or they do not answer.
    shown = {pci_key(status.identity.pci_bus_id) for status in snapshot.statuses}
    bus = [address for address in snapshot.bus or () if pci_key(address) not in shown]
    names = [*bus, *(f"index {index}" for index in sorted(snapshot.unanswered))]
    hidden = [HIDDEN + name for name in names[: max(len(bus), len(snapshot.unanswered))]]
    for name in hidden[absent:]:
        known[name] = KnownLimit(unread=since.get(name) or times.now - GRACE_SECONDS)
    return replace(limits, known=known, failed={uuid: watts for uuid, watts in limits.failed.items() if uuid in known})


HIDDEN = "hidden "


def _merged(
    before: KnownLimit, gpu: Gpu | None, board: GpuCapabilities | None, setting: Setting | None, times: Times
) -> KnownLimit:
    limit = before if gpu is None else _read(before, gpu, times.at)
    tops = [limit.most, limit.watts]
    tops += [gpu.power.limit_max, gpu.power.limit_default] if gpu else []
    tops += [board.limit_max, board.limit_default, board.limit] if board else []
    tops += [setting.original, *setting.applied] if setting else []
    floors = [gpu.power.limit_min if gpu else None, board.limit_min if board else None, before.floor]
    is_read = gpu is not None and (limit.written_at is not None or _configured(gpu) is not None)
    return replace(
        limit,
        floor=next(_sound(floors), None),
        most=max(_sound(tops), default=None),
        unread=None if is_read else times.now if before.unread is None else before.unread,
    )


def _read(before: KnownLimit, gpu: Gpu, at: float) -> KnownLimit:
    """The enforced limit, never above the configured one, is read with every sample: it shows a rise first."""
    written_at = None if before.written_at is None else min(before.written_at, at)  # a clock that was set back
    enforced = next(_sound([gpu.power.limit_enforced]), 0.0)
    samples_since = before.samples_since + (written_at is not None and written_at < gpu.at != before.at)
    if written_at is not None and before.watts is not None and samples_since < LATE_SAMPLES:
        watts = before.watts if gpu.at == before.at else max(before.watts, enforced)  # it may be newer than the write
        return replace(before, watts=watts, at=gpu.at, written_at=written_at, samples_since=samples_since)
    configured = _configured(gpu)
    known = before.watts if configured is None else max(configured, enforced)
    return replace(before, watts=known, at=gpu.at, written_at=None, samples_since=0)


def _configured(gpu: Gpu) -> float | None:
    return next(_sound([gpu.power.limit_configured]), None)


def _sound(watts: Iterable[float | None]) -> Iterator[float]:
    """Those that are known and possible."""
    return (each for each in watts if each is not None and 0 < each < math.inf)


def in_force(limits: KnownLimits, now: float) -> tuple[InForce, ...] | None:
    """Every GPU that may draw of the budget. None: it is not known of any GPU how much it may draw."""
    highest = max(_sound(limit.most for limit in limits.known.values()), default=None)
    if highest is None and limits.known:
        return None
    found = []
    for uuid, limit in limits.known.items():
        known = limit.most or 0.0
        is_board = known and limit.floor is not None  # a record alone does not show a board's most
        most = known if is_board else max(highest or 0.0, known)
        if limit.unread is not None and limit.watts is not None and now - limit.unread < GRACE_SECONDS:
            most = limit.watts
        found.append(InForce(uuid=uuid, watts=limit.watts if limit.unread is None else None, most=most))
    return tuple(found)
