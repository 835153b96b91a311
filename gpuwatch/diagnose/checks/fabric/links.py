"""Judges the NVLinks of each GPU: how many are up, and whether their errors grow."""

from collections import defaultdict

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, failed, gpu_list, passed, skipped, warned
from gpuwatch.diagnose.checks.fabric.switches import COMPLETED, has_switches
from gpuwatch.health.gpu_history import link_errors
from gpuwatch.model.snapshot import Gpu


def links(context: CheckContext) -> CheckVerdict:
    """F03. Without a switch links may lead nowhere by design, and only the agent's finding counts."""
    linked = [gpu for gpu in context.gpus if gpu.nvlinks and not gpu.mig_enabled]
    if not linked:
        return skipped("NVLinks rest while MIG is on" if any(gpu.nvlinks for gpu in context.gpus) else "no NVLink")
    words = {at: finding.message for at, finding in context.findings("nvlink_down") if at is not None}
    up = {gpu.identity.index: _up(gpu) for gpu in linked if all(link.active is not None for link in gpu.nvlinks)}
    for gpu in linked:
        most = max((up[o.identity.index] for o in _siblings(gpu, linked) if o.identity.index in up), default=0)
        if _is_switched(context, gpu) and up.get(gpu.identity.index, most) < most:
            words.setdefault(gpu.identity.index, f"fewer NVLinks are up than of its siblings, which have {most}")
    if not words:
        counts = sorted(set(up.values()))
        return passed(f"{' or '.join(map(str, counts)) or 'unknown'} links per GPU")
    evidence = {f"gpu {at}": f"{said}{_count(at, linked, up)}" for at, said in sorted(words.items())}
    dead = tuple(sorted(index for index in words if up.get(index) == 0))
    gpus = dead or tuple(sorted(words))
    message = f"{gpu_list(gpus)}: {words[gpus[0]]}{_count(gpus[0], linked, up)}"
    return failed(message, evidence, gpus=gpus) if dead else warned(message, evidence, gpus=gpus)


def errors(context: CheckContext) -> CheckVerdict:
    """F04: what the agent found within an hour, and whatever grew while we looked."""
    linked = [gpu for gpu in context.gpus if gpu.nvlinks]
    if not linked:
        return skipped("no NVLink")
    words = {at: finding.message for at, finding in context.findings("nvlink_errors") if at is not None}
    before = {gpu.identity.uuid: gpu for gpu in context.facts.earlier.snapshot.gpus} if context.facts.earlier else {}
    for gpu in linked:
        grown = _growth(before.get(gpu.identity.uuid), gpu)
        if grown:
            worst = max(grown, key=lambda link: grown[link])
            said = f"{sum(grown.values())} NVLink errors while we looked, most on link {worst}"
            words.setdefault(gpu.identity.index, said)
    if words:
        gpus = tuple(sorted(words))
        evidence = {f"gpu {index}": said for index, said in sorted(words.items())}
        return warned(f"{gpu_list(gpus)}: {words[gpus[0]]}", evidence, gpus=gpus)
    total = sum(link_errors(link) for gpu in linked for link in gpu.nvlinks)
    return passed(f"{total} since the driver was loaded" if total else "none")


def _up(gpu: Gpu) -> int:
    return sum(bool(link.active) for link in gpu.nvlinks)


def _siblings(gpu: Gpu, linked: list[Gpu]) -> list[Gpu]:
    return [other for other in linked if other.identity.name == gpu.identity.name]


def _is_switched(context: CheckContext, gpu: Gpu) -> bool:
    return has_switches(context.facts.services) or gpu.fabric.state == COMPLETED


def _count(index: int, linked: list[Gpu], up: dict[int, int]) -> str:
    total = next((len(gpu.nvlinks) for gpu in linked if gpu.identity.index == index), None)
    return f" ({up[index]} of {total} links)" if index in up else ""


def _growth(before: Gpu | None, now: Gpu) -> dict[int, int]:
    """Link -> errors that matter since; a counter that was reset starts at 0."""
    known: dict[int, int] = defaultdict(int)
    for link in before.nvlinks if before else now.nvlinks:
        known[link.link] = link_errors(link)
    return {
        link.link: link_errors(link) - known[link.link] for link in now.nvlinks if link_errors(link) > known[link.link]
    }
