"""Who sets power and clocks of this node: gpuwatch's tuner, somebody else, or somebody who is gone."""

from collections.abc import Iterator

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, passed, skipped, warned
from gpuwatch.diagnose.checks.per_gpu import count_gpus, verdict_on_gpus
from gpuwatch.diagnose.checks.settings import is_tuned, settings
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.setting import Setting
from gpuwatch.model.view import View
from gpuwatch.tuning.model.order import is_same


def _orphans(context: CheckContext) -> CheckVerdict:
    """What is recorded and in force, with nobody left who would give it back."""
    held = settings(context)
    if not held:
        return passed("gpuwatch has set nothing")
    index = {status.identity.uuid: status.identity.index for status in context.statuses}
    left = {setting.uuid: why for setting in held if (why := _orphaned(context, setting))}
    if not left:
        return passed(f"the tuner answers for {len(held)} settings")
    gpus = tuple(sorted(index[uuid] for uuid in left if uuid in index))
    named = {(f"gpu {index[uuid]}" if uuid in index else uuid): why for uuid, why in left.items()}
    who, why = next(iter(named.items()))
    return warned(f"{who.replace('gpu', 'GPU')}: {why}", named, gpus=gpus)


def _orphaned(context: CheckContext, setting: Setting) -> str | None:
    view = context.facts.view
    boot = view.snapshot.host.boot_id if view else None
    driver = view.snapshot.driver.version if view and view.snapshot.driver else None
    what = f"{_value(setting)} of gpuwatch's tuner"
    if boot is not None and boot != setting.boot_id:
        return f"{what} is still recorded, but was set before the last boot"
    if driver is not None and driver != setting.driver:
        return f"{what} is still recorded, but was set under driver {setting.driver}"
    return None if is_tuned(context) else f"{what} is left over: {_tuner(context)}"


def _tuner(context: CheckContext) -> str:
    beat = context.facts.tuner
    if beat is None:
        return "no tuner runs"
    return "its tuner is silent" if beat.mode == "enforce" else f"its tuner's mode is {beat.mode}"


def _value(setting: Setting) -> str:
    value = setting.applied[0] if setting.applied else None
    if setting.knob == "power_limit":
        return "a power limit" if value is None else f"a power limit of {value:.0f} W"
    return "a clock lock" if value is None else f"a clock lock at {value / 1e6:.0f} MHz"


def _others(context: CheckContext) -> CheckVerdict:
    """Whoever else would set limits or clocks, where gpuwatch does."""
    if context.config.tuning.mode != "enforce" and not settings(context):
        return skipped("gpuwatch sets nothing here")
    found = dict(_rivals(context))
    if not found:
        running = context.facts.services and context.facts.services.runs("nv-hostengine")
        return passed("nobody else is seen", {"nv-hostengine": HOST_ENGINE} if running else {})
    who, how = next(iter(found.items()))
    return warned(f"{who} sets power or clocks as well: {how}", found)


HOST_ENGINE = "it runs, and sets anew after each reset what it was told; see dcgmi config --get"

RIVAL_MARKS = {"dynamo.nvidia.com/gpu-power-limit": "the Dynamo power agent"}
"""Annotation or label of a pod or Node -> who acts on it."""


def _rivals(context: CheckContext) -> Iterator[tuple[str, str]]:
    for where, marks in _marked(context):
        for key in marks.keys() & RIVAL_MARKS.keys():
            yield RIVAL_MARKS[key], f"{where} has {key}={marks[key]}"
    yield from _overruled(context)


def _marked(context: CheckContext) -> Iterator[tuple[str, dict[str, str]]]:
    """Labels and annotations of the Node and its pods, with whose they are."""
    cluster = context.facts.cluster
    if cluster is None:
        return
    yield f"node {cluster.node.name}", cluster.node.labels | cluster.node.annotations
    for pod in cluster.pods or ():
        yield f"pod {pod.namespace}/{pod.name}", pod.labels | pod.annotations


def _overruled(context: CheckContext) -> Iterator[tuple[str, str]]:
    """A limit that is not what gpuwatch has written down."""
    limits = {gpu.identity.uuid: (gpu.identity.index, gpu.power.limit_configured) for gpu in context.gpus}
    for setting in settings(context):
        index, limit = limits.get(setting.uuid, (None, None))
        ours = (*setting.applied, *(() if setting.original is None else (setting.original,)))
        if setting.knob == "power_limit" and limit is not None and not any(is_same(limit, watts) for watts in ours):
            yield "somebody", f"GPU {index} has a limit of {limit:.0f} W, gpuwatch has set {ours[0]:.0f} W"


def _budget(context: CheckContext) -> CheckVerdict:
    budget = context.expect.power_budget
    if budget is None:
        return skipped("no power budget is expected of this node (power_budget of the baseline)")
    limits = {gpu.identity.index: gpu.power.limit_enforced for gpu in context.gpus}
    known = {index: watts for index, watts in limits.items() if watts is not None}
    if len(known) < len(limits) or not known:
        return skipped("not every GPU tells its power limit")
    total = sum(known.values())
    said = f"the limits of {count_gpus(len(known))} add up to {total:.0f} W, the budget is {budget:.0f} W"
    return warned(said, {f"gpu {i}": f"{w:.0f} W" for i, w in known.items()}) if total > budget + 1 else passed(said)


def _energy(context: CheckContext) -> CheckVerdict:
    view, before = context.facts.view, context.facts.earlier
    if view is None or before is None or before.snapshot.at >= view.snapshot.at:
        return skipped("it takes two looks")
    if view.snapshot.driver != before.snapshot.driver:
        return skipped("the driver was loaded anew meanwhile")
    grown = {gpu.identity.index: text for gpu in context.gpus if (text := _wrong(before, gpu.identity.uuid, context))}
    if grown:
        return verdict_on_gpus(grown)
    counted = sum(gpu.power.energy is not None for gpu in context.gpus)
    return passed(f"{counted} counters grow") if counted else skipped("no GPU counts its energy (Volta and newer do)")


IDLE_WATTS = 5.0
LOOK_SECONDS = 0.9
"""A counter moves every 100 ms."""


def _wrong(before: View, uuid: str, context: CheckContext) -> str | None:
    then = next((gpu for gpu in before.snapshot.gpus if gpu.identity.uuid == uuid), None)
    now = next(gpu for gpu in context.gpus if gpu.identity.uuid == uuid)
    if then is None or then.power.energy is None or now.power.energy is None:
        return None
    if now.power.energy < then.power.energy:
        return f"its energy counter went back from {then.power.energy:.0f} to {now.power.energy:.0f} J"
    draws = (now.power.average or 0.0) > IDLE_WATTS and now.at - then.at >= LOOK_SECONDS
    is_stuck = draws and now.power.energy == then.power.energy
    return "it draws power, but its energy counter stands still" if is_stuck else None


POWER: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "P01", CheckStage.POWER, "somebody answers for what gpuwatch has set",
        how="actuation.json of the state directory against boot, driver and the tuner's heartbeat",
        failure="GPU 3: a clock lock at 1005 MHz of gpuwatch's tuner is left over: no tuner runs",
        remedy="Give it back, then see why neither the tuner nor its guard did: see their logs, and whether they "
        "share the state directory.",
        commands=("gpuwatch tune restore", "nvidia-smi -i {gpu} -q -d POWER,CLOCK"),
        judge=_orphans, needs=("N02",), reads=("record",),
    ),
    DiagnosticCheck(
        "P02", CheckStage.POWER, "nobody but gpuwatch sets power and clocks here",
        how="the Dynamo power agent's annotations, power limits against gpuwatch's record, nv-hostengine",
        failure="the Dynamo power agent sets power or clocks as well: pod ml/decode has "
        "dynamo.nvidia.com/gpu-power-limit=400",
        remedy="Two who set the same thing undo each other: choose one. Set tuning.mode to observe, or take the other "
        "away from this node.",
        commands=("gpuwatch tune status",),
        judge=_others, reads=("record",),
    ),
    DiagnosticCheck(
        "P03", CheckStage.POWER, "power limits stay within the node's budget",
        how="sum of nvmlDeviceGetEnforcedPowerLimit against power_budget of the baseline",
        failure="the limits of 8 GPUs add up to 5600 W, the budget is 4800 W",
        remedy="Under full load the node can draw more than it was promised. Lower the limits or raise the budget.",
        commands=("nvidia-smi -q -d POWER | grep -i 'power limit'",),
        judge=_budget, needs=("N04",), reads=("view",),
    ),
    DiagnosticCheck(
        "P04", CheckStage.POWER, "energy counters grow",
        how="nvmlDeviceGetTotalEnergyConsumption of two looks",
        failure="GPU 1: it draws power, but its energy counter stands still",
        remedy="Energy figures of this GPU are wrong until the driver is loaded again. One that went back was reset "
        "meanwhile; one that stands still is the driver's fault: look for a newer one of its branch.",
        commands=("nvidia-smi -i {gpu} --query-gpu=power.draw,power.draw.instant --format=csv -l 1",),
        judge=_energy, needs=("N04",), reads=("view", "earlier"), level="full", each=True,
    ),
)  # fmt: skip
"""What is left behind first."""
