"""Heat, clocks and power of each GPU: what slows it down, and who wants it so."""

from collections.abc import Iterator

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, gpu_list, passed, skipped
from gpuwatch.diagnose.checks.per_gpu import believed, blame, many, told, untold
from gpuwatch.diagnose.checks.settings import held, settings
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.health.check import is_paced
from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.gates.gates import foreign_limit
from gpuwatch.tuning.model.restore_value import is_same

COOLING = (
    "Check fans, air filters, blanking panels and the temperature of the air at the inlet; compare with the GPUs "
    "beside it. One GPU alone that is hot has a bad heat sink: have it looked at."
)


def _heat(context: CheckContext) -> CheckVerdict:
    warm = [gpu for gpu in context.gpus if gpu.temperature.gpu is not None]
    if not warm:
        return untold(context, "no GPU tells its temperature")
    if found := believed(context, "thermal_margin"):
        return found._replace(remedy=COOLING, commands=None)
    if hot := told(context, _over, worst=_excess):
        return blame(hot)
    hottest = max(warm, key=lambda gpu: gpu.temperature.gpu or 0.0)
    return passed(f"the hottest has {hottest.temperature.gpu:.0f} °C (GPU {hottest.identity.index})")


def _over(gpu: Gpu) -> str | None:
    """Of GPUs that state their limits in degrees; those that state a margin are judged by the agent's rules."""
    over = (f"{now:.0f} °C, {what} at {limit:.0f} °C" for what, now, limit in _temperatures(gpu) if now >= limit)
    return next(over, None)


def _excess(gpu: Gpu) -> float:
    return max(now - limit for _, now, limit in _temperatures(gpu))


def _temperatures(gpu: Gpu) -> Iterator[tuple[str, float, float]]:
    """What happens at a limit, °C now, °C of the limit; as far as both are known."""
    heat = gpu.temperature
    for what, now, limit in (
        ("slowdown", heat.gpu, heat.threshold_slowdown),
        ("the memory's limit", heat.memory, heat.threshold_memory_max),
    ):
        if now is not None and limit is not None:
            yield what, now, limit


def _slowed(context: CheckContext) -> CheckVerdict:
    if not any(gpu.clock_events.active for gpu in context.gpus):
        return untold(context, "no GPU tells why its clocks are low")
    if braked := believed(context, "hw_power_brake"):
        return braked._replace(remedy=POWER, commands=None)
    if found := believed(context, "hw_thermal_slowdown"):
        return found._replace(remedy=COOLING, commands=None)
    if held_down := told(context, _held_down):
        return blame(held_down, remedy=f"{COOLING} If it is cool: {POWER}")
    return passed("nothing holds clocks down but load and limits")


POWER = (
    "Check the power supplies, their redundancy and the GPU's power cables; the board or the rack asks for less power. "
    "See the BMC's event log and the rack's power budget."
)


def _held_down(gpu: Gpu) -> str | None:
    active = gpu.clock_events.active
    if active.get("sw_thermal_slowdown"):
        return "the driver lowers the clocks because of heat"
    specific = active.get("hw_thermal_slowdown") or active.get("hw_power_brake_slowdown")
    return "the hardware lowers the clocks, for heat or power" if active.get("hw_slowdown") and not specific else None


def _limits(context: CheckContext) -> CheckVerdict:
    known = [gpu for gpu in context.gpus if gpu.power.limit_default is not None]
    if not known:
        return untold(context, "no GPU tells its power limits")
    ours = held(context, "power_limit")
    expected = context.expect.power_limit
    if bad := told(context, lambda gpu: _foreign(context, gpu, expected), worst=lambda gpu: -(_limit(gpu) or 0.0)):
        default = next(gpu.power.limit_default for gpu in known if gpu.identity.index == next(iter(bad)))
        return blame(bad, commands=("nvidia-smi -i {gpu} -q -d POWER", f"nvidia-smi -i {{gpu}} -pl {default:.0f}"))
    return passed(f"gpuwatch has set {gpu_list(tuple(sorted(ours)))}" if ours else many(len(known)))


def _foreign(context: CheckContext, gpu: Gpu, expected: float | None) -> str | None:
    power, limit = gpu.power, _limit(gpu)
    if limit is None or power.limit_default is None or (expected is not None and is_same(limit, expected)):
        return None
    ours = tuple(setting for setting in settings(context) if setting.uuid == gpu.identity.uuid)
    if not foreign_limit(gpu, ours):
        return None
    if power.limit_enforced is not None and is_same(limit, power.limit_default):
        return f"{power.limit_enforced:.0f} W are enforced of a limit of {limit:.0f} W: not set through this driver"
    return f"limit {limit:.0f} W, default {power.limit_default:.0f} W, and not by gpuwatch"


def _limit(gpu: Gpu) -> float | None:
    """Watts."""
    return gpu.power.limit_enforced if gpu.power.limit_configured is None else gpu.power.limit_configured


def _clocks(context: CheckContext) -> CheckVerdict:
    """A GPU whose clocks gpuwatch holds is meant to be slow."""
    busy = [gpu for gpu in context.gpus if _is_busy(context, gpu)]
    if not busy:
        return skipped("no GPU is at work" if context.gpus else "no GPU answers")
    ours = held(context, "locked_clocks")
    if found := believed(context, "clocks_stuck", without=ours):
        return found._replace(remedy=None, commands=None)
    free = [gpu for gpu in busy if gpu.identity.index not in ours and not _has_reason(gpu)]
    top = {name: max(g.clocks.sm or 0.0 for g in free if g.identity.name == name) for name in {_name(g) for g in free}}
    bad = {
        gpu.identity.index: f"{(gpu.clocks.sm or 0.0) / 1e6:.0f} MHz, others of its model at work have "
        f"{top[_name(gpu)] / 1e6:.0f} MHz, and no reason is given"
        for gpu in sorted(free, key=lambda gpu: gpu.clocks.sm or 0.0)
        if (gpu.clocks.sm or 0.0) < SIBLINGS * top[_name(gpu)]
    }
    holds = f"; gpuwatch's tuner holds those of {gpu_list(tuple(ours))}" if ours else ""
    return blame(bad) if bad else passed(f"{many(len(busy))} at work{holds}")


SIBLINGS = 0.8
"""Chips of one model differ by less at the same work."""


def _name(gpu: Gpu) -> str | None:
    return gpu.identity.name


def _is_busy(context: CheckContext, gpu: Gpu) -> bool:
    load = gpu.utilization.gpu or 0.0
    return load >= context.config.checks.stuck_utilization and gpu.clocks.sm is not None and not is_paced(gpu)


def _has_reason(gpu: Gpu) -> bool:
    return any(on for reason, on in gpu.clock_events.active.items() if reason != "gpu_idle")


BOARD: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "G06",
        CheckStage.HEALTH,
        "GPUs are cool enough",
        "nvmlDeviceGetTemperature against its thresholds; nvmlDeviceGetMarginTemperature",
        "GPU 4: 88 °C, slowdown at 87 °C | 1 °C above its limit",
        COOLING,
        _heat,
        needs=("N04",),
        reads=("view",),
        commands=("nvidia-smi -q -d TEMPERATURE",),
        each=True,
    ),
    DiagnosticCheck(
        "G07",
        CheckStage.HEALTH,
        "neither heat nor the power supply holds clocks down",
        "nvmlDeviceGetCurrentClocksEventReasons: hardware, thermal and power-brake slowdown",
        "GPU 6: the power supply asks for less power",
        f"{COOLING} {POWER}",
        _slowed,
        needs=("N04",),
        reads=("view",),
        commands=("nvidia-smi -q -d PERFORMANCE", "ipmitool sel list | tail"),
        each=True,
    ),
    DiagnosticCheck(
        "G08",
        CheckStage.HEALTH,
        "power limits are the boards' default, or somebody known set them",
        "nvmlDeviceGetPowerManagementLimit, nvmlDeviceGetEnforcedPowerLimit against the default; gpuwatch's own record",
        "GPU 3: limit 300 W, default 700 W, and not by gpuwatch",
        "Find out who set it: a boot script with nvidia-smi -pl, DCGM (dcgmi config --get), the BMC, another tuner. If "
        "nobody wants it, give it back; if it is meant so, say power_limit in the baseline (--expect).",
        _limits,
        needs=("N04",),
        reads=("view",),
        commands=("nvidia-smi -i {gpu} -q -d POWER",),
        each=True,
    ),
    DiagnosticCheck(
        "G09",
        CheckStage.HEALTH,
        "GPUs at work have their clocks",
        "nvmlDeviceGetClockInfo of GPUs at work, with clock event reasons, against their highest and their siblings'; "
        "gpuwatch's own record",
        "GPU 3: at work with 17% of its highest clock, and no reason given",
        "Most often somebody has locked its clocks (nvidia-smi -lgc) and left: unlock them. If that changes nothing, "
        "reset the GPU when its work is done.",
        _clocks,
        needs=("N04",),
        reads=("view",),
        commands=("nvidia-smi -i {gpu} -q -d CLOCK,PERFORMANCE", "nvidia-smi -i {gpu} -rgc"),
        each=True,
    ),
)
"""From heat to what it does."""
