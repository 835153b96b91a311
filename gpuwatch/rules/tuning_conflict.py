"""Whether somebody else turns a GPU's clocks: there is one lock for all, and the driver tells nobody who has it.

Seen from outside: a clock above our cap, a clock held down for which the driver names no reason, and application clocks
that nobody here has set. A GPU that limits itself names a reason, and that is no conflict.
"""

import msgspec

from gpuwatch.model.snapshot import Gpu, Record

SETTLE_SECONDS = 2.0
"""A lock takes effect within a second; a sample this long after a switch is not of the ramp."""

AGO_SECONDS = 10.0
"""No View is older: a switch further ahead of a sample is of a clock that was set back since."""

ABOVE_HERTZ, ABOVE = 30e6, 3
"""Clocks come in steps of 7.5 or 15 MHz, and a reading may round up by one. So many samples in a row."""

BELOW, BELOW_SAMPLES = 0.05, 5
"""Boost varies by a step or two, 1 or 2 %. So many samples in a row, busy and without a reason."""

STILL_HERTZ = 15e6
"""A lock holds a busy GPU's clock still; what wanders is the GPU's own boost."""

BUSY = 0.5
"""A GPU that is idle half of the time is sampled on its way up or down."""

SETTING = "applications_clocks_setting"
SETTING_SAMPLES = 3

WHO = "an admin's `nvidia-smi -lgc` or `-ac`, or DCGM's configuration"

evolve = msgspec.structs.replace


class Watch(Record, frozen=True, kw_only=True):
    """One GPU. `at`: unix seconds of its newest sample; `above`, `named`: samples in a row that were above our cap, and
    that named application clocks; `below`: the clocks of those in a row that were below for no reason, newest last.
    """

    at: float | None = None
    above: int = 0
    below: tuple[float, ...] = ()
    named: int = 0


def look(watch: Watch, gpu: Gpu, cap: float | None, top: float, switched: float | None) -> tuple[Watch, str]:
    """Take in one sample; why somebody else must be at work, in words, empty: nobody is.

    `cap`: the clock in hertz we hold it at, None: nothing of ours is set; `top`: its highest clock; `switched`: unix
    seconds of our newest change.
    """
    if gpu.at == watch.at:
        return watch, ""
    if switched is not None and -AGO_SECONDS < gpu.at - switched < SETTLE_SECONDS:
        return evolve(watch, at=gpu.at), ""
    clock = gpu.clocks.sm
    is_above = clock is not None and cap is not None and clock > cap + ABOVE_HERTZ
    is_below = clock is not None and clock < (1 - BELOW) * (top if cap is None else cap) and _is_unexplained(gpu)
    is_named = cap is None and gpu.clock_events.active.get(SETTING, False)
    watch = Watch(
        at=gpu.at,
        above=watch.above + 1 if is_above else 0,
        below=(*watch.below, clock)[-BELOW_SAMPLES:] if is_below and clock is not None else (),
        named=watch.named + 1 if is_named else 0,
    )
    return watch, _words(watch, clock or 0.0, cap, top)


def _is_unexplained(gpu: Gpu) -> bool:
    """Whether a busy GPU in its highest state names no reason; application clocks are no reason to be below our cap.

    Where the driver tells no reasons at all, nothing can be said.
    """
    busy = (gpu.activity.graphics or 0.0) > BUSY and gpu.performance_state in (0, None)
    reasons = gpu.clock_events.active
    return busy and bool(reasons) and not any(on for reason, on in reasons.items() if reason != SETTING)


def _words(watch: Watch, clock: float, cap: float | None, top: float) -> str:
    if watch.above >= ABOVE and cap is not None:
        return f"its SM clock is {_mhz(clock)}, our cap {_mhz(cap)}: somebody has locked or reset its clocks ({WHO})"
    still = max(watch.below, default=0.0) - min(watch.below, default=0.0) <= STILL_HERTZ
    if len(watch.below) >= BELOW_SAMPLES and still:
        allowed = f"its highest {_mhz(top)}" if cap is None else f"our cap {_mhz(cap)}"
        return f"its SM clock is {_mhz(clock)}, {allowed}, and no reason is named: somebody has locked it ({WHO})"
    if watch.named >= SETTING_SAMPLES:
        return f"application clocks hold it at {_mhz(clock)}, and not by gpuwatch ({WHO})"
    return ""


def _mhz(hertz: float) -> str:
    return f"{hertz / 1e6:,.0f} MHz"
