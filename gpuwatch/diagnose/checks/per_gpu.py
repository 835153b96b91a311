"""What checks of each GPU have in common: from a reading per GPU, or the agent's own findings, to one verdict."""

from collections.abc import Callable, Iterable

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, failed, gpu_list, skipped, warned
from gpuwatch.diagnose.checks.remedies import ADVICE
from gpuwatch.model.finding import Finding, Severity
from gpuwatch.model.snapshot import Gpu

FOR_SCREENS = frozenset({"GeForce", "GeForce RTX", "Titan", "Titan RTX", "Quadro", "Quadro RTX", "NVIDIA RTX", "NVS"})
"""Brands that work at desks too, where nobody minds a driver that starts anew, or boards of several makers."""

SILENT = "no GPU answers"


def many(number: int) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{number} GPU{'s' if number != 1 else ''}"


def told(
    context: CheckContext, ask: Callable[[Gpu], str | None], worst: Callable[[Gpu], float] = lambda gpu: 0.0
) -> dict[int, str]:
    """NVML index -> what `ask` has to say against that GPU; those with most of `worst` first."""
    answers = [(gpu, text) for gpu in context.gpus if (text := ask(gpu))]
    return {gpu.identity.index: text for gpu, text in sorted(answers, key=lambda each: -worst(each[0]))}


def untold(context: CheckContext, reason: str) -> CheckVerdict:
    """None of the GPUs has the reading: `reason`, or there is no GPU to ask."""
    return skipped(reason if context.gpus else SILENT)


def blame(
    bad: dict[int, str],
    *,
    fatal: bool = False,
    remedy: str | None = None,
    commands: tuple[str, ...] | None = None,
) -> CheckVerdict:
    """A warning, or a failure if `fatal`, about these GPUs, the worst first: its words are told, and who else is to
    blame; what is wrong with the others is evidence.
    """
    text = next(iter(bad.values()))
    alike = tuple(index for index in bad if bad[index] == text)
    others = tuple(index for index in bad if bad[index] != text)
    also = f"; also {gpu_list(others)}" if others else ""
    say = failed if fatal else warned
    evidence = {f"gpu {index}": words for index, words in bad.items()}
    return say(f"{gpu_list(alike)}: {text}{also}", evidence, gpus=tuple(bad), remedy=remedy, commands=commands)


def believed(context: CheckContext, *checks: str, without: Iterable[int] = ()) -> CheckVerdict | None:
    """What the agent's rules found by these checks, the worst first; None: nothing. `without`: GPUs left out."""
    found = [(at, finding) for at, finding in context.findings(*checks) if at is not None and at not in without]
    found.sort(key=lambda each: (each[1].severity is not Severity.CRITICAL, each[0]))
    if not found:
        return None
    worst = found[0][1]
    same = [(at, f) for at, f in found if (f.check, f.severity) == (worst.check, worst.severity)]
    advice = ADVICE.get(worst.remedy)
    action = f"{worst.action[:1].upper()}{worst.action[1:]}." if worst.action else ""
    verdict = blame(
        {at: f.message for at, f in same},
        fatal=worst.severity is Severity.CRITICAL,
        remedy=" ".join(filter(None, (action, advice.words if advice else ""))),
        commands=advice.commands if advice else None,
    )
    return verdict._replace(evidence=_evidence(found))


def _evidence(found: Iterable[tuple[int, Finding]]) -> dict[str, str]:
    evidence: dict[str, str] = {}
    for at, finding in found:
        said = evidence.get(f"gpu {at}")
        evidence[f"gpu {at}"] = f"{said}; {finding.message}" if said else finding.message
        evidence |= {f"gpu {at} {name}": text for name, text in finding.evidence.items() if name != "pci"}
    return evidence
