"""What sets power and clocks of this node: gpuwatch's tuner, another program, or a tuner that has ended."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, passed, skipped, warned
from gpuwatch.diagnose.checks.per_gpu import count_gpus, verdict_on_gpus
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.tuning.model.setting import is_same

ALIVE_SECONDS = 60.0
"""A tuner writes its heartbeat every few seconds."""


def check_orphans(context: CheckContext) -> CheckVerdict:
    """Settings that are recorded and in force, although no process is left that would restore them."""
    recorded, view, heartbeat = context.recorded_settings, context.facts.view, context.facts.tuner
    if not recorded:
        return passed("gpuwatch has set nothing")
    boot = view.snapshot.host.boot_id if view else None
    driver = view.snapshot.driver.version if view and view.snapshot.driver else None
    is_enforcing = heartbeat is not None and heartbeat.mode == "enforce"
    if heartbeat is None:
        tuner = "no tuner runs"
    else:
        tuner = "its tuner is silent" if is_enforcing else f"its tuner's mode is {heartbeat.mode}"
    is_alive = heartbeat is not None and abs(context.sampled_at - heartbeat.at) <= ALIVE_SECONDS
    left: dict[str, str] = {}
    for setting in recorded:
        value = setting.applied[0] if setting.applied else None
        if setting.knob == "power_limit":
            kind = "a power limit" if value is None else f"a power limit of {value:.0f} W"
        else:
            kind = "a clock lock" if value is None else f"a clock lock at {value / 1e6:.0f} MHz"
        name = f"{kind} of gpuwatch's tuner"
        if boot is not None and boot != setting.boot_id:
            left[setting.uuid] = f"{name} is still recorded, but was set before the last boot"
        elif driver is not None and driver != setting.driver:
            left[setting.uuid] = f"{name} is still recorded, but was set under driver {setting.driver}"
        elif not (is_enforcing and is_alive):
            left[setting.uuid] = f"{name} is left over: {tuner}"
    if not left:
        return passed(f"the tuner answers for {len(recorded)} settings")
    index = {status.identity.uuid: status.identity.index for status in context.statuses}
    gpus = tuple(sorted(index[uuid] for uuid in left if uuid in index))
    problems = {(f"gpu {index[uuid]}" if uuid in index else uuid): why for uuid, why in left.items()}
    where, why = next(iter(problems.items()))
    return warned(f"{where.replace('gpu', 'GPU')}: {why}", problems, gpus=gpus)


def check_others(context: CheckContext) -> CheckVerdict:
    if context.config.tuning.mode != "enforce" and not context.recorded_settings:
        return skipped("gpuwatch sets nothing here")
    found: dict[str, str] = {}  # another program that sets power or clocks -> the trace of it
    cluster = context.facts.cluster
    if cluster is not None:
        marks = {f"node {cluster.node.name}": cluster.node.labels | cluster.node.annotations}
        marks |= {f"pod {pod.namespace}/{pod.name}": pod.labels | pod.annotations for pod in cluster.pods or ()}
        for where, keys in marks.items():
            found |= {RIVAL_MARKS[key]: f"{where} has {key}={keys[key]}" for key in keys.keys() & RIVAL_MARKS.keys()}
    limits = {gpu.identity.uuid: (gpu.identity.index, gpu.power.limit_configured) for gpu in context.gpus}
    for setting in context.recorded_settings:
        index, limit = limits.get(setting.uuid, (None, None))
        ours = (*setting.applied, *(() if setting.original is None else (setting.original,)))
        if setting.knob == "power_limit" and limit is not None and not any(is_same(limit, watts) for watts in ours):
            found["another program"] = f"GPU {index} has a limit of {limit:.0f} W, gpuwatch has set {ours[0]:.0f} W"
    if not found:
        running = context.facts.services and context.facts.services.runs("nv-hostengine")
        return passed("no other program is found", {"nv-hostengine": HOST_ENGINE} if running else {})
    setter, how = next(iter(found.items()))
    return warned(f"{setter} sets power or clocks as well: {how}", found)


HOST_ENGINE = "it runs, and repeats its settings after each reset; see dcgmi config --get"

RIVAL_MARKS = {"dynamo.nvidia.com/gpu-power-limit": "the Dynamo power agent"}
"""Annotation or label of a pod or Node -> the program that acts on it."""


def check_budget(context: CheckContext) -> CheckVerdict:
    budget = context.expect.power_budget
    if budget is None:
        return skipped("no power budget is expected of this node (power_budget of the baseline)")
    limits = {gpu.identity.index: gpu.power.limit_enforced for gpu in context.gpus}
    known = {index: watts for index, watts in limits.items() if watts is not None}
    if len(known) < len(limits) or not known:
        return skipped("not every GPU reports its power limit")
    total = sum(known.values())
    message = f"the limits of {count_gpus(len(known))} add up to {total:.0f} W, the budget is {budget:.0f} W"
    return (
        warned(message, {f"gpu {i}": f"{w:.0f} W" for i, w in known.items()}) if total > budget + 1 else passed(message)
    )


def check_energy(context: CheckContext) -> CheckVerdict:
    view, before = context.facts.view, context.facts.earlier
    if view is None or before is None or before.snapshot.at >= view.snapshot.at:
        return skipped("it takes two samples")
    if view.snapshot.driver != before.snapshot.driver:
        return skipped("the driver was reloaded meanwhile")
    wrong: dict[int, str] = {}
    earlier = {gpu.identity.uuid: gpu for gpu in before.snapshot.gpus}
    for gpu in context.gpus:
        start = earlier[gpu.identity.uuid].power.energy if gpu.identity.uuid in earlier else None
        end = gpu.power.energy
        if start is None or end is None:
            continue
        draws = (gpu.power.average or 0.0) > IDLE_WATTS and gpu.at - earlier[gpu.identity.uuid].at >= MIN_GAP_SECONDS
        if end < start:
            wrong[gpu.identity.index] = f"its energy counter went back from {start:.0f} to {end:.0f} J"
        elif draws and end == start:
            wrong[gpu.identity.index] = "it draws power, but its energy counter stands still"
    if wrong:
        return verdict_on_gpus(wrong)
    counted = sum(gpu.power.energy is not None for gpu in context.gpus)
    return passed(f"{counted} counters grow") if counted else skipped("no GPU counts its energy (Volta and newer do)")


IDLE_WATTS = 5.0
MIN_GAP_SECONDS = 0.9
"""A counter moves every 100 ms."""


POWER: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "P01", CheckStage.POWER, "settings of gpuwatch have a tuner or a guard",
        how="actuation.json of the state directory against boot, driver and the tuner's heartbeat",
        remedy="Restore it, then find in the logs why neither the tuner nor its guard did, and whether they share the "
        "state directory.",
        commands=("gpuwatch tune restore", "nvidia-smi -i {gpu} -q -d POWER,CLOCK"),
        judge=check_orphans, needs=("N02",), reads=("record",),
    ),
    DiagnosticCheck(
        "P02", CheckStage.POWER, "only gpuwatch sets power and clocks here",
        how="the Dynamo power agent's annotations, power limits against gpuwatch's record, nv-hostengine",
        remedy="Two managers of one setting undo each other. Set tuning.mode to observe, or remove the other from "
        "this node.",
        commands=("gpuwatch tune status",),
        judge=check_others, reads=("record",),
    ),
    DiagnosticCheck(
        "P03", CheckStage.POWER, "power limits stay within the node's budget",
        how="sum of nvmlDeviceGetEnforcedPowerLimit against power_budget of the baseline",
        remedy="Under full load the node can draw more than it was promised. Lower the limits or raise the budget.",
        commands=("nvidia-smi -q -d POWER | grep -i 'power limit'",),
        judge=check_budget, needs=("N04",), reads=("view",),
    ),
    DiagnosticCheck(
        "P04", CheckStage.POWER, "energy counters grow",
        how="nvmlDeviceGetTotalEnergyConsumption of two samples",
        remedy="Energy figures of this GPU are wrong until the driver is loaded again. A counter that went back was "
        "reset; one that stands still is a driver fault: look for a newer release.",
        commands=("nvidia-smi -i {gpu} --query-gpu=power.draw,power.draw.instant --format=csv -l 1",),
        judge=check_energy, needs=("N04",), reads=("view", "earlier"), level="full", each=True,
    ),
)  # fmt: skip
"""Settings that were left behind come first."""
