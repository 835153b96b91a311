"""Heat, clocks and power of each GPU: what slows it down, and the setting or device that causes it."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, passed, skipped
from gpuwatch.diagnose.checks.per_gpu import (
    agent_verdict,
    count_gpus,
    gpu_list,
    no_reading,
    problems_by_gpu,
    verdict_on_gpus,
)
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.health.check import is_paced
from gpuwatch.model.snapshot import Gpu
from gpuwatch.tuning.gates.eligibility import foreign_limit
from gpuwatch.tuning.model.setting import Knob, is_same

COOLING = (
    "Check fans, air filters, blanking panels and the inlet's air temperature; compare with the GPUs beside it. If "
    "only one GPU is hot, inspect its heat sink."
)


def check_heat(context: CheckContext) -> CheckVerdict:
    warm = [gpu for gpu in context.gpus if gpu.temperature.gpu is not None]
    if not warm:
        return no_reading(context, "no GPU reports its temperature")
    if found := agent_verdict(context, "thermal_margin"):
        return found._replace(remedy=COOLING, commands=None)
    hot: dict[int, tuple[float, str]] = {}
    for gpu in warm:  # GPUs that state limits in degrees; those that state a margin are judged by the agent's rules
        heat = gpu.temperature
        limits = (
            ("slowdown", heat.gpu, heat.threshold_slowdown),
            ("the memory's limit", heat.memory, heat.threshold_memory_max),
        )
        over = [
            (now - limit, f"{now:.0f} °C, {effect} at {limit:.0f} °C")
            for effect, now, limit in limits
            if now is not None and limit is not None and now >= limit
        ]
        if over:
            hot[gpu.identity.index] = (max(over)[0], over[0][1])
    if hot:
        return verdict_on_gpus({index: hot[index][1] for index in sorted(hot, key=lambda index: -hot[index][0])})
    hottest = max(warm, key=lambda gpu: gpu.temperature.gpu or 0.0)
    return passed(f"the hottest has {hottest.temperature.gpu:.0f} °C (GPU {hottest.identity.index})")


def check_slowed(context: CheckContext) -> CheckVerdict:
    if not any(gpu.clock_events.active for gpu in context.gpus):
        return no_reading(context, "no GPU reports why its clocks are low")
    if braked := agent_verdict(context, "hw_power_brake"):
        return braked._replace(remedy=POWER, commands=None)
    if found := agent_verdict(context, "hw_thermal_slowdown"):
        return found._replace(remedy=COOLING, commands=None)
    slow: dict[int, str] = {}
    for gpu in context.gpus:
        active = gpu.clock_events.active
        if active.get("sw_thermal_slowdown"):
            slow[gpu.identity.index] = "the driver lowers the clocks because of heat"
        elif active.get("hw_slowdown") and not (
            active.get("hw_thermal_slowdown") or active.get("hw_power_brake_slowdown")
        ):
            slow[gpu.identity.index] = "the hardware lowers the clocks, for heat or power"
    if slow:
        return verdict_on_gpus(slow, remedy=f"{COOLING} If it is cool: {POWER}")
    return passed("nothing holds clocks down but load and limits")


POWER = (
    "Check the power supplies, their redundancy and the GPU's power cables; the board or the rack asks for less power. "
    "See the BMC's event log and the rack's power budget."
)


def check_limits(context: CheckContext) -> CheckVerdict:
    known = [gpu for gpu in context.gpus if gpu.power.limit_default is not None]
    if not known:
        return no_reading(context, "no GPU reports its power limits")
    ours = _set_by_gpuwatch(context, "power_limit")
    expected = context.expect.power_limit
    if bad := problems_by_gpu(
        context, lambda gpu: _foreign(context, gpu, expected), worst=lambda gpu: -(_limit(gpu) or 0.0)
    ):
        default = next(gpu.power.limit_default for gpu in known if gpu.identity.index == next(iter(bad)))
        return verdict_on_gpus(
            bad, commands=("nvidia-smi -i {gpu} -q -d POWER", f"nvidia-smi -i {{gpu}} -pl {default:.0f}")
        )
    return passed(f"gpuwatch has set {gpu_list(tuple(sorted(ours)))}" if ours else count_gpus(len(known)))


def _foreign(context: CheckContext, gpu: Gpu, expected: float | None) -> str | None:
    power, limit = gpu.power, _limit(gpu)
    if limit is None or power.limit_default is None or (expected is not None and is_same(limit, expected)):
        return None
    ours = tuple(setting for setting in context.recorded_settings if setting.uuid == gpu.identity.uuid)
    if not foreign_limit(gpu, ours):
        return None
    if power.limit_enforced is not None and is_same(limit, power.limit_default):
        return f"{power.limit_enforced:.0f} W are enforced of a limit of {limit:.0f} W: not set through this driver"
    return f"limit {limit:.0f} W, default {power.limit_default:.0f} W, and not by gpuwatch"


def _limit(gpu: Gpu) -> float | None:
    """Watts."""
    return gpu.power.limit_enforced if gpu.power.limit_configured is None else gpu.power.limit_configured


def check_clocks(context: CheckContext) -> CheckVerdict:
    """A GPU whose clocks gpuwatch has locked is slow on purpose, and left out."""
    busy = [
        gpu
        for gpu in context.gpus
        if (gpu.utilization.gpu or 0.0) >= context.config.checks.stuck_utilization
        and gpu.clocks.sm is not None
        and not is_paced(gpu)
    ]
    if not busy:
        return skipped("no GPU is at work" if context.gpus else "no GPU answers")
    ours = _set_by_gpuwatch(context, "locked_clocks")
    if found := agent_verdict(context, "clocks_stuck", without=ours):
        return found._replace(remedy=None, commands=None)
    free = [
        gpu
        for gpu in sorted(busy, key=lambda gpu: gpu.clocks.sm or 0.0)
        if gpu.identity.index not in ours
        and not any(on for reason, on in gpu.clock_events.active.items() if reason != "gpu_idle")
    ]
    top = {gpu.identity.name: gpu.clocks.sm or 0.0 for gpu in free}  # the last of a model is its fastest
    bad = {
        gpu.identity.index: f"{(gpu.clocks.sm or 0.0) / 1e6:.0f} MHz, others of its model at work have "
        f"{top[gpu.identity.name] / 1e6:.0f} MHz, and no reason is given"
        for gpu in free
        if (gpu.clocks.sm or 0.0) < SIBLINGS * top[gpu.identity.name]
    }
    holds = f"; gpuwatch's tuner holds those of {gpu_list(tuple(ours))}" if ours else ""
    return verdict_on_gpus(bad) if bad else passed(f"{count_gpus(len(busy))} at work{holds}")


SIBLINGS = 0.8
"""Chips of one model differ by less at the same work."""


def _set_by_gpuwatch(context: CheckContext, knob: Knob) -> frozenset[int]:
    """NVML indexes of GPUs whose `knob` gpuwatch has set."""
    uuids = {setting.uuid for setting in context.recorded_settings if setting.knob == knob}
    return frozenset(status.identity.index for status in context.statuses if status.identity.uuid in uuids)


BOARD: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "G06", CheckStage.HEALTH, "GPUs are cool enough",
        how="nvmlDeviceGetTemperature against its thresholds; nvmlDeviceGetMarginTemperature",
        remedy=COOLING,
        commands=("nvidia-smi -q -d TEMPERATURE",),
        judge=check_heat, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G07", CheckStage.HEALTH, "neither heat nor the power supply holds clocks down",
        how="nvmlDeviceGetCurrentClocksEventReasons: hardware, thermal and power-brake slowdown",
        remedy=f"{COOLING} {POWER}",
        commands=("nvidia-smi -q -d PERFORMANCE", "ipmitool sel list | tail"),
        judge=check_slowed, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G08", CheckStage.HEALTH, "power limits are the boards' default, or gpuwatch set them",
        how="nvmlDeviceGetPowerManagementLimit, nvmlDeviceGetEnforcedPowerLimit against the default; gpuwatch's own "
        "record",
        remedy="Find out who set it: a boot script with nvidia-smi -pl, DCGM (dcgmi config --get), the BMC, another "
        "tuner. Restore it, or put power_limit into the baseline (--expect).",
        commands=("nvidia-smi -i {gpu} -q -d POWER",),
        judge=check_limits, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G09", CheckStage.HEALTH, "GPUs at work have their clocks",
        how="nvmlDeviceGetClockInfo and clock event reasons of busy GPUs against their highest clock and the other "
        "GPUs'; gpuwatch's own record",
        remedy="Most often its clocks were locked (nvidia-smi -lgc) and left so: unlock them. If that changes "
        "nothing, reset the GPU when its work is done.",
        commands=("nvidia-smi -i {gpu} -q -d CLOCK,PERFORMANCE", "nvidia-smi -i {gpu} -rgc"),
        judge=check_clocks, needs=("N04",), reads=("view",), each=True,
    ),
)  # fmt: skip
"""From heat to its effects."""
