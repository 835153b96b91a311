"""A GPU at work whose clock, draw and counters follow its knobs, so that a tuner finds on it what a real one has.

A table of its clocks has what it draws and how fast it is at each. The library picks the row when a knob is turned;
here is the same for what a test changes.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from tests.fakes.libnvml import layout
from tests.fakes.libnvml.library import KNOBS

STEP_MHZ = 15
GPU_IDLE, SW_POWER_CAP = 0x1, 0x4  # nvmlClocksEventReasons
ENGINE, TENSOR, DRAM, FP32, FP16 = (1, 2), (5, 7), (10,), (12,), (13,)  # nvmlGpmMetricId_t


class FakeSet(NamedTuple):
    """A call of a setter: `value` mW or MHz, None where it resets; `result` nvmlReturn_t, 0 where it took effect."""

    gpu: int
    knob: str
    value: int | None
    result: int
    pid: int


class Coupling:
    """What clients set on a fake driver, and what it does to a GPU at work."""

    control: Any  # layout.ControlStruct

    def couple(
        self,
        gpu: int | None = None,
        clock_bound: float | None = 0.5,
        *,
        base_watts: float = 100.0,
        dynamic_watts: float = 450.0,
        static: float = 0.2,
        exponent: float = 2.5,
        engine: float = 1.0,
        dram: float = 0.5,
        pipe: float = 0.4,
    ) -> None:
        """Let it work: `clock_bound` is the share of its time that goes with the SM clock; None: it holds, and idles.

        At clock f of the highest fmax it draws base + dynamic * (static + (1 - static) * (f / fmax) ** exponent) and is
        1 / (1 - clock_bound + clock_bound * fmax / f) times as fast. `engine`, `dram`, `pipe`: shares active at fmax.
        """
        for slot in self._slots(gpu):
            target = self.control.gpus[slot]
            self._close(target)
            work, top = target.work, target.clock_max_mhz[1]
            if target.coupled != 1:
                work.idle_mhz, work.idle_mw, target.coupled = target.clock_mhz[1], target.power_mw, 1
            clocks = range(top, target.clock_min_mhz - 1, -STEP_MHZ)
            work.count, work.now = len(clocks), -1 if clock_bound is None else 0
            for row, mhz in enumerate(clocks):
                share = static + (1 - static) * (mhz / top) ** exponent
                work.mhz[row], work.power_mw[row] = mhz, round((base_watts + dynamic_watts * share) * 1e3)
                work.pace[row] = 1 / (1 - (clock_bound or 0.0) + (clock_bound or 0.0) * top / mhz)
            busy = float(clock_bound is not None) * 100
            for metrics, active in ((ENGINE, engine), (TENSOR, pipe), (DRAM, dram), (FP32, pipe / 4), (FP16, pipe / 2)):
                for metric in metrics:
                    target.gpm_values[metric] = busy * active
            target.util_gpu = round(busy * engine)
            target.pstate = 0
            self._choose(target)

    def sets(self) -> tuple[FakeSet, ...]:
        """Every call of a setter that has returned, since the start or `reset_calls`, oldest first."""
        return tuple(self._kept())

    def forget_settings(self, gpu: int | None = None) -> None:
        """What a boot or a driver load does: the default power limit, and no locked clocks."""
        for slot in self._slots(gpu):
            target = self.control.gpus[slot]
            self._close(target)
            target.power_limit_mw = target.power_limit_enforced_mw = target.power_limit_default_mw
            target.locked_min_mhz = target.locked_max_mhz = layout.ABSENT
            self._choose(target)

    def _slots(self, gpu: int | None) -> Iterator[int]:
        count = self.control.gpu_count
        if gpu is not None and not 0 <= gpu < count:
            raise IndexError(f"there is no GPU {gpu}, only {count}")
        yield from range(count) if gpu is None else (gpu,)

    def _kept(self) -> Iterator[FakeSet]:
        head = self.control.set_head
        if head > layout.MAX_SETS:
            raise OverflowError(f"{head} calls of setters, {layout.MAX_SETS} are kept: reset_calls() in between")
        for kept in self.control.sets[:head]:
            value = None if kept.value == layout.ABSENT else kept.value
            yield FakeSet(kept.gpu, KNOBS[kept.knob], value, kept.result, kept.pid)

    def _close(self, target: Any) -> None:
        """Closes the accounts at what was in force until now."""
        now, work = time.monotonic_ns(), target.work
        if layout.ABSENT not in (target.energy_mj, target.power_mw):
            target.energy_mj += target.power_mw * (now - target.energy_since_ns) // 1_000_000_000
        target.energy_since_ns = now
        if target.coupled == 1 and work.now >= 0:
            pace = work.pace[work.now] * (now - work.since_ns)
            work.work_ns += pace
            work.cycles_ns += pace * work.mhz[0] / work.mhz[work.now]
        work.since_ns = now

    def _choose(self, target: Any) -> None:
        """Finds the row of a coupled GPU's table that is in force now."""
        work, low, high = target.work, target.locked_min_mhz, target.locked_max_mhz
        if target.coupled != 1:
            return
        if work.now < 0:
            mhz = work.idle_mhz if high == layout.ABSENT else min(max(work.idle_mhz, low), high)
            watts, events = work.idle_mw, GPU_IDLE
        else:
            rows = range(work.count)
            asked = next((row for row in rows if high == layout.ABSENT or work.mhz[row] <= high), rows[-1])
            within = (row for row in rows[asked:] if work.power_mw[row] <= target.power_limit_mw)
            work.now = next(within, rows[-1])
            mhz, watts = work.mhz[work.now], work.power_mw[work.now]
            events = SW_POWER_CAP if work.now > asked else 0
        target.power_mw, target.clock_events = watts, events
        if target.power_average_mw != layout.ABSENT:
            target.power_average_mw = watts
        target.clock_mhz[0] = target.clock_mhz[1] = mhz
