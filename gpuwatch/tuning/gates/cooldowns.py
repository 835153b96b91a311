"""GPUs that are left alone for a while: after an order that failed, a conflict, or too many changes in an hour."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from gpuwatch.model.snapshot import Record
from gpuwatch.tuning.gates.conflict import YIELD_SECONDS
from gpuwatch.tuning.model.setting import ApplyResult, Knob, OrderOutcome
from gpuwatch.tuning.model.status import Obstacle, ObstacleReason

NOT_SET_SECONDS = 600.0
"""A driver seldom accepts a minute later what it has refused; each attempt delays the GPU's other calls."""


class Cooldown(NamedTuple):
    """Why a GPU is left alone, until a monotonic second."""

    until: float
    reason: ObstacleReason
    message: str


Cooldowns = Mapping[tuple[str, ObstacleReason], Cooldown]


def failed_orders(
    results: Iterable[ApplyResult], now: float, knobs: Collection[Knob]
) -> Iterator[tuple[str, Cooldown]]:
    """GPUs whose orders for `knobs` were not carried out. After a timeout the driver may still carry them out."""
    for each in results:
        order = each.order
        if each.outcome is OrderOutcome.DONE or order.knob not in knobs:
            continue
        if each.outcome is OrderOutcome.FOREIGN:
            yield order.uuid, conflict_cooldown(now, each.message or f"another program has changed {order.knob}")
        else:
            what = "restoring" if order.value is None else "setting"
            message = f"{what} {order.knob}: {each.outcome}{f', {each.message}' if each.message else ''}"
            yield order.uuid, Cooldown(now + NOT_SET_SECONDS, ObstacleReason.NOT_SET, message)


def conflict_cooldown(now: float, message: str) -> Cooldown:
    """Another process sets the GPU: our settings are restored, and the GPU is left alone for an hour."""
    return Cooldown(now + YIELD_SECONDS, ObstacleReason.CONFLICT, message)


def with_new(cooldowns: Cooldowns, news: Iterable[tuple[str, Cooldown]], now: float) -> Cooldowns:
    """Those that are not over, with the new ones."""
    left = {key: cooldown for key, cooldown in cooldowns.items() if cooldown.until > now}
    return left | {(uuid, cooldown.reason): cooldown for uuid, cooldown in news}


def cooldown_obstacles(uuid: str, cooldowns: Cooldowns, now: float) -> Iterator[Obstacle]:
    """The obstacles of a GPU."""
    for (name, reason), cooldown in cooldowns.items():
        if name == uuid:
            yield Obstacle(
                reason=reason, message=f"{cooldown.message}; left alone for {max(0.0, cooldown.until - now):.0f} s"
            )


HOUR = 3600.0


class RateLimit(Record, frozen=True, kw_only=True):
    """One GPU's actions of the last hour, monotonic seconds, oldest first."""

    acts: tuple[float, ...] = ()


def wait_seconds(rate_limit: RateLimit, now: float, limit: int) -> float | None:
    """Seconds to wait until less than `limit` actions are younger than an hour. None: one may be done now."""
    recent = _recent(rate_limit, now)
    if limit <= 0:
        return HOUR
    # The age is computed as in `_recent`: rounded another way, the wait would be 0 or longer than an hour.
    return None if len(recent) < limit else HOUR - (now - recent[-limit])


def with_action(rate_limit: RateLimit, now: float) -> RateLimit:
    """With one more action, now."""
    return RateLimit(acts=(*_recent(rate_limit, now), now))


def _recent(rate_limit: RateLimit, now: float) -> tuple[float, ...]:
    return tuple(at for at in rate_limit.acts if now - at < HOUR)
