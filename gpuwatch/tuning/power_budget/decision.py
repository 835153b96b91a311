"""What each GPU shall have of the budget: seldom, unless something has changed that cannot wait."""

from collections.abc import Collection

from msgspec.structs import replace

from gpuwatch.tuning.power_budget import demand as demands
from gpuwatch.tuning.power_budget.allocation import Demand, How, emergency, share
from gpuwatch.tuning.power_budget.demand import Draw
from gpuwatch.tuning.power_budget.overdraw import ENOUGH_SECONDS, Reading, watch
from gpuwatch.tuning.power_budget.state import Look, Memory, Plight, Verdict, ceiling
from gpuwatch.tuning.power_budget.write_order import InForce

SHARE_SECONDS = 30.0

LEARN_SECONDS = ENOUGH_SECONDS + 5.0
"""At the start nobody is held for so long, unless too much is drawn: a GPU that is held does not show what it needs."""


def watched(memory: Memory, look: Look, budget: float) -> Memory:
    """Take in what each GPU draws, and all together."""
    draws = {uuid: draw for uuid, draw in memory.draws.items() if uuid in memory.limits.known}
    for gpu in look.view.snapshot.gpus if look.view else ():
        uuid = gpu.identity.uuid
        if (limit := memory.limits.known[uuid].watts) is not None:
            draws[uuid] = demands.drawn(
                draws.get(uuid, Draw()),
                gpu,
                limit=limit,
                ceiling=ceiling(memory, look, uuid),
                owner=look.owners.get(uuid),
                state=look.probes.get(uuid),
                now=look.now,
            )
    total, is_whole = drawn(memory, look)
    reading = Reading(look.now, total) if is_whole or total > budget else None  # nobody draws less than nothing
    return replace(memory, draws=draws, overdraw=watch(memory.overdraw, reading, budget))


def drawn(memory: Memory, look: Look) -> tuple[float, bool]:
    """Watts that all who were read draw together, and whether those are all."""
    samples = look.view.snapshot.gpus if look.view else ()
    known = [watts for watts in (demands.watts(gpu.power) for gpu in samples) if watts is not None]
    return sum(known), len(known) == len(memory.limits.known)


def bound(memory: Memory, look: Look, gpu: InForce) -> float | None:
    """What a GPU counts for that is not to be written now, watts. None: it may be written."""
    known, failed = memory.limits, memory.limits.failed.get(gpu.uuid)
    is_free = gpu.uuid not in look.fixed and not known.is_resting(gpu.uuid, look.now) and failed is None
    if is_free and gpu.watts is not None and known.known[gpu.uuid].floor is not None:
        return None
    return max(gpu.at_worst, failed or 0.0)


def judged(memory: Memory, look: Look, budget: float, now: Collection[InForce], exceeded: bool) -> Memory:
    """Share anew where it is time, or where what the verdict was made for has changed."""
    verdict, is_urgent = memory.verdict, memory.overdraw.is_emergency(look.now)
    if verdict is not None and memory.limits.in_grace(look.now) and not exceeded:
        return memory
    situation = (budget, is_urgent, *sorted(_bearing(memory, look, each) for each in now))
    if verdict is not None and verdict.situation == situation and look.now - verdict.at < SHARE_SECONDS:
        return memory
    gpus = tuple(_demand(memory, look, each) for each in now)
    if is_urgent:
        at_most = emergency(budget, gpus, {each.uuid: each.at_worst for each in now})
        how, words, limits = str(Plight.EMERGENCY), f"more than {budget:.0f} W was drawn: equal parts at most", at_most
    else:
        shares = share(budget, gpus)
        is_plain = shares.how is How.UNLIMITED and not memory.limits.failed
        if not is_plain and _is_learning(memory, look, gpus, exceeded):
            return memory
        how, words, limits = str(shares.how), shares.words, dict(shares.limits)
    return replace(memory, verdict=Verdict(limits=limits, how=how, words=words, at=look.now, situation=situation))


def _demand(memory: Memory, look: Look, gpu: InForce) -> Demand:
    draw = memory.draws.get(gpu.uuid, Draw())
    return Demand(
        uuid=gpu.uuid,
        floor=memory.limits.known[gpu.uuid].floor or 0.0,
        ceiling=ceiling(memory, look, gpu.uuid),
        draw=draw.demand,
        curve=draw.curve,
        priority=look.priorities.get(gpu.uuid, 0),
        fixed=bound(memory, look, gpu),
    )


def _bearing(memory: Memory, look: Look, gpu: InForce) -> tuple[str, str, int, int]:
    """What of a GPU is answered at once when it changes."""
    fixed = bound(memory, look, gpu)
    watts = -1 if fixed is None else round(fixed)
    return gpu.uuid, look.owners.get(gpu.uuid, ""), look.priorities.get(gpu.uuid, 0), watts


def _is_learning(memory: Memory, look: Look, gpus: Collection[Demand], exceeded: bool) -> bool:
    """Whether nobody was ever held, or all by an earlier life, and it is still to be seen what somebody draws."""
    is_new = memory.since is not None and look.now - memory.since < LEARN_SECONDS
    is_untouched = memory.verdict is None and not (look.settings and exceeded)
    asked = memory.limits.failed
    return is_new and is_untouched and any(gpu.draw is None for gpu in gpus if gpu.fixed is None or gpu.uuid in asked)
