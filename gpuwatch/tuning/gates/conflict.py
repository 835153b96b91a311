"""Whether another process sets a GPU's clocks: there is one lock for all, and the driver does not name its owner.

The signs: a clock above our cap, a clock held down for which the driver names no reason, and a clock setting that
gpuwatch has not made. Where a GPU limits itself, the driver names a reason, and that is no conflict.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuwatch.health.check import WORKING_STATE
from gpuwatch.model.snapshot import Gpu, Record

SETTLE_SECONDS = 2.0
"""A lock takes effect within a second; until then the clock still changes."""

MAX_VIEW_AGE_SECONDS = 15.0
"""No View is older: a switch that is later by more than this means that the clock was set back."""

ABOVE_HERTZ, ABOVE_SAMPLES = 30e6, 3
"""Clocks come in steps of 15 MHz, on Volta of 7.5 MHz, and a reading may be a step or two off.
`ABOVE_SAMPLES`: in a row.
"""

BELOW, BELOW_SAMPLES = 0.05, 5
"""Boost moves by a step or two, which is 1 or 2 %. `BELOW_SAMPLES`: in a row, busy and without a reason."""

STILL_HERTZ = 15e6
"""A lock holds a busy GPU's clock still; a clock that varies is the GPU's own boost."""

BUSY = 0.5
"""A GPU that is idle half of the time is sampled while its clock rises or falls."""

SETTING, SETTING_SAMPLES = "applications_clocks_setting", 3
"""The driver names this reason for application clocks and for locked ones, also for those of gpuwatch."""

IDLE = "gpu_idle"

YIELD_SECONDS = 3600.0
"""How long gpuwatch leaves a GPU alone after it found that another process sets it."""

OTHER_CONTROLLERS = "an admin's `nvidia-smi -lgc` or `-ac`, or DCGM's configuration"


class ConflictWatch(Record, frozen=True, kw_only=True):
    """One GPU. `at`: unix seconds of its newest sample; `held`: reason -> seconds for which it has held the clock, as
    of then. `above`, `named`: samples in a row that were above our cap, and that named a setting; `below`: the clocks
    of those in a row that were too low for no reason, newest last.
    """

    at: float | None = None
    held: Mapping[str, float] = {}
    above: int = 0
    below: tuple[float, ...] = ()
    named: int = 0


def check(
    watch: ConflictWatch, gpu: Gpu, cap: float | None, top: float | None, switched: float | None
) -> tuple[ConflictWatch, str]:
    """Take in one sample; returns why another process must have set the clocks, empty: no sign of one.

    `cap`: the clock in hertz we hold it at, None: nothing of ours is set; `top`: its highest clock; `switched`: unix
    seconds of our newest change.
    """
    if gpu.at == watch.at:
        return watch, ""
    known = replace(watch, at=gpu.at, held=gpu.clock_events.seconds)
    if switched is not None and -MAX_VIEW_AGE_SECONDS < gpu.at - switched < SETTLE_SECONDS:
        return known, ""
    clock, allowed = gpu.clocks.sm, top if cap is None else cap
    is_low = clock is not None and allowed is not None and clock < (1 - BELOW) * allowed
    is_setting = cap is None and gpu.clock_events.active.get(SETTING, False)
    updated = replace(
        known,
        above=watch.above + 1 if clock is not None and cap is not None and clock > cap + ABOVE_HERTZ else 0,
        below=(*watch.below, clock)[-BELOW_SAMPLES:] if clock is not None and is_low and _is_free(gpu, watch) else (),
        named=watch.named + 1 if is_setting else 0,
    )
    return updated, _message(updated, clock, cap, allowed)


def _is_free(gpu: Gpu, watch: ConflictWatch) -> bool:
    """Whether a GPU is busy in a working state and nothing holds its clock down, now or since the sample before.

    The counters also cover what has no bit: the board's limit, and the voltage at which the chip is reliable. A setting
    is no reason to be below our own cap. Where the driver reports no reasons at all, the answer is False.
    """
    active, held = gpu.clock_events.active, gpu.clock_events.seconds
    is_busy = (gpu.activity.graphics or 0.0) > BUSY and (gpu.performance_state or 0) <= WORKING_STATE
    is_held = any(on for reason, on in active.items() if reason != SETTING)
    was_held = any(seconds > watch.held.get(reason, seconds) for reason, seconds in held.items() if reason != IDLE)
    return is_busy and bool(active) and not is_held and not was_held


def _message(watch: ConflictWatch, clock: float | None, cap: float | None, allowed: float | None) -> str:
    if clock is None:
        return ""
    now = f"its SM clock is {_mhz(clock)}"
    if watch.named >= SETTING_SAMPLES:
        return f"{now}, held by a setting that gpuwatch has not made: {OTHER_CONTROLLERS}"
    if allowed is None:
        return ""
    most = f"{'its highest' if cap is None else 'our cap'} {_mhz(allowed)}"
    if watch.above >= ABOVE_SAMPLES:
        return f"{now}, {most}: another program has locked or reset its clocks, {OTHER_CONTROLLERS}"
    if len(watch.below) == BELOW_SAMPLES and max(watch.below) - min(watch.below) <= STILL_HERTZ:
        unexplained = "and the driver names no reason: another program has locked its clocks"
        return f"{now}, {most}, {unexplained}, {OTHER_CONTROLLERS}"
    return ""


def _mhz(hertz: float) -> str:
    return f"{hertz / 1e6:.0f} MHz"
