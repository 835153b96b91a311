"""The effect of load on a GPU: clocks, watts, degrees and counters, in steps of simulated time.

    P(f) = base + load * (full - base) * (s + (1 - s) * (f / fmax) ** a)      s, a: power_static, power_exponent
    T'   = (ambient + R * P - T) / tau
    pace = 1 / (1 - bound + bound * fmax / f)      work in a second, that at full clock being 1; bound: Load.clock_bound

The clock is the highest 15 MHz step whose draw stays below the power limit and below the draw that keeps the GPU under
its highest operating temperature, and never above a locked one; above the slowdown threshold, or on the power brake,
the hardware halves it. Bytes per unit of work stay the same, so memory and NVLink follow the pace; so do instructions
per unit of work, so a pipe is busy for a larger share of the cycles of a lower clock.
"""

import math
from collections import deque
from typing import NamedTuple

from gpuwatch.sim.node.gpu import SimGpu
from gpuwatch.sim.node.load import NOTHING, Load
from gpuwatch.sim.node.noise import uniform

AMBIENT = 26.0
CLOCK_STEP = 15
HISTORY = 240

IDLE, SW_POWER, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, HW_BRAKE = 0x1, 0x4, 0x8, 0x20, 0x40, 0x80
"""nvmlClocksEventReason* bits."""


class Moment(NamedTuple):
    """One step as the driver's sample buffers hold it."""

    t: float
    power: float
    busy: float


class Physics:
    """The running state of one GPU. Counters are exact at `time`; `counter` extends them to any later moment."""

    def __init__(self, gpu: SimGpu) -> None:
        self.gpu, self.time = gpu, 0.0
        self.load: Load = NOTHING
        self.power, self.clock, self.reasons = gpu.model.power_idle, float(gpu.model.clock_idle), IDLE
        self.temperature = AMBIENT + gpu.model.thermal_resistance * self.power
        self.energy = self.work = 0.0  # joules; seconds of busy time at full clock that the work done would have taken
        self.pace = self.strain = 1.0  # work in a second and in a cycle, at full clock both 1
        self.seconds = dict.fromkeys((IDLE, SW_POWER, SW_THERMAL, HW_THERMAL, HW_BRAKE), 0.0)
        self.nvlink_bytes = self.pcie_sent = self.pcie_received = 0.0
        self.nvlink_rate = self.pcie_rate = 0.0  # bytes a second, each way over all links; to the host
        self.history: deque[Moment] = deque(maxlen=HISTORY)

    def advance(self, t: float) -> None:
        """Let time pass to `t` with the draw of the last decision."""
        dt = t - self.time
        if dt <= 0:
            return
        load = self.load
        self.energy += self.power * dt
        self.work += self.pace * load.busy * dt
        for bit in self.seconds:
            if self.reasons & bit:
                self.seconds[bit] += dt
        self.nvlink_bytes += self.nvlink_rate * dt
        self.pcie_sent += self.pcie_rate * dt
        self.pcie_received += 0.6 * self.pcie_rate * dt
        for unit in self.gpu.units:
            totals, of = unit.totals, unit.load
            totals[0] += of.busy * dt
            totals[1] += of.sm * dt
            totals[2] += of.tensor * dt
            totals[3] += of.dram * dt
            totals[4] += of.sm * self.strain * dt
        target = self.ambient + self.resistance * self.power
        self.temperature = target + (self.temperature - target) * math.exp(-dt / self.gpu.model.thermal_seconds)
        self.time = t
        self.history.append(Moment(t, self.power, load.busy))

    def decide(self) -> None:
        """Choose clock and draw for the load of this moment."""
        units = self.gpu.units
        for unit in units:
            unit.load = unit.demand(self.time)
        if len(units) == 1 and units[0].share == 1.0:
            self.load = units[0].load
        elif any(unit.processes for unit in units):  # MIG instances by their share of the GPU
            parts = [[x * unit.share for x in unit.load] for unit in units]
            self.load = Load(*(sum(column) for column in zip(*parts, strict=True)))
        else:
            self.load = NOTHING
        # clocks are up, and watts are spent, as soon as a process holds the GPU
        held = any([unit.processes for unit in units])
        base = self.gpu.model.power_context if held else self.gpu.model.power_idle
        dynamic = self.load.power * (self.gpu.model.power_full - self.gpu.model.power_context)
        dynamic *= 1 + 0.01 * (uniform(self.gpu.stream, int(self.time * 1000)) - 0.5)
        self.clock = self._clock(held, base, dynamic)
        self.power = base + dynamic * self._draw(self.clock)
        # a lower clock makes the clock-bound part of the work take longer
        bound, ratio = self.load.clock_bound, self.clock / self.gpu.model.clock_max
        pace = self.pace = 1 / (1 - bound + bound / ratio)
        strain = self.strain = pace / ratio
        if ratio < 1 and self.load.busy:
            load = self.load
            self.load = load._replace(tensor=load.tensor * strain, dram=load.dram * pace, nvlink=load.nvlink * pace)
            for unit in units:
                unit.load = unit.load._replace(tensor=unit.load.tensor * strain, dram=unit.load.dram * pace)
        faults, model = self.gpu.faults, self.gpu.model
        self.nvlink_rate = 0.0
        if self.load.nvlink:
            self.nvlink_rate = self.load.nvlink * sum(faults.link_active) * model.nvlink_speed * 1e6 * 0.7
        generation = faults.pcie_generation or model.pcie_generation
        lane = 0.985e9 * 2.0 ** (generation - 3)  # bytes a second
        self.pcie_rate = 3e5 + self.load.pcie * (faults.pcie_width or 16) * lane * 0.8

    def settle(self) -> None:
        """Set the temperature that the load of this moment reaches in the long run."""
        warm = self.ambient + self.resistance * self.power
        self.temperature = min(warm, float(self.gpu.model.max_operating))

    def driver_reloaded(self) -> None:
        """Counters start again."""
        self.energy = self.nvlink_bytes = self.pcie_sent = self.pcie_received = 0.0
        self.seconds = dict.fromkeys(self.seconds, 0.0)

    def counter(self, total: float, rate: float, t: float) -> float:
        """A counter at `t`, not before the last step."""
        return total + rate * max(0.0, t - self.time)

    @property
    def ambient(self) -> float:
        """Inlet air, degrees; it is warmer at GPUs further along the air flow."""
        ambient = self.gpu.faults.ambient
        return (AMBIENT if ambient is None else ambient) + self.gpu.index % 4

    @property
    def resistance(self) -> float:
        """Degrees per watt with the cooling as it is."""
        return self.gpu.model.thermal_resistance / self.gpu.faults.cooling

    def _draw(self, clock: float) -> float:
        """Share of the dynamic draw at full clock."""
        model = self.gpu.model
        ratio = clock / model.clock_max
        return model.power_static + (1 - model.power_static) * math.pow(ratio, model.power_exponent)

    def _clock(self, held: bool, base: float, dynamic: float) -> float:
        """The clock; also sets `reasons`."""
        gpu, model = self.gpu, self.gpu.model
        self.reasons = 0 if self.load.busy > 0.005 else IDLE
        clock = float(model.clock_max if held else model.clock_idle)
        if gpu.locked_clocks is not None:
            lowest, highest = gpu.locked_clocks
            clock = float(min(max(clock, lowest), highest, model.clock_max))
        # at the highest operating temperature, what is left is the draw that the cooling carries away there
        thermal = (
            model.max_operating - self.ambient + 0.5 * (model.max_operating - self.temperature)
        ) / self.resistance
        allowed = min(gpu.power_limit, thermal)
        if dynamic and base + dynamic * self._draw(clock) > allowed:
            left = ((allowed - base) / dynamic - model.power_static) / (1 - model.power_static)
            share = math.pow(max(0.0, left), 1 / model.power_exponent)
            clock = model.clock_max * share // CLOCK_STEP * CLOCK_STEP
            self.reasons |= SW_THERMAL if thermal < gpu.power_limit else SW_POWER
        if self.temperature >= model.slowdown:
            self.reasons |= HW_SLOWDOWN | HW_THERMAL
        if gpu.faults.power_brake:
            self.reasons |= HW_SLOWDOWN | HW_BRAKE
        if self.reasons & HW_SLOWDOWN:
            clock = min(clock, model.clock_max / 2 // CLOCK_STEP * CLOCK_STEP)
        if gpu.faults.clock_cap is not None and gpu.faults.clock_cap < clock:
            clock = float(gpu.faults.clock_cap)
            self.reasons &= ~(SW_POWER | SW_THERMAL)  # it draws too little for them
        return max(clock, float(model.clock_idle))
