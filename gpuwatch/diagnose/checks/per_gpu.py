"""What checks of each GPU have in common: from a reading per GPU, or the agent's own findings, to one verdict."""

from collections.abc import Callable, Iterable

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, failed, skipped, spans, warned
from gpuwatch.diagnose.checks.remedies import ADVICE
from gpuwatch.model.finding import Severity
from gpuwatch.model.snapshot import Gpu

WORKSTATION_BRANDS = frozenset(
    {"GeForce", "GeForce RTX", "Titan", "Titan RTX", "Quadro", "Quadro RTX", "NVIDIA RTX", "NVS"}
)
"""Brands also sold for workstations: a driver may start again at each use, and boards come from several makers."""


def count_gpus(number: int) -> str:
    """`1 GPU`, `8 GPUs`."""
    return f"{number} GPU{'s' if number != 1 else ''}"


def gpu_list(indexes: tuple[int, ...]) -> str:
    """`GPU 3`, `GPUs 0, 3`, `GPUs 0-7`."""
    return f"GPU{'s' if len(indexes) != 1 else ''} {spans(indexes)}"


def problems_by_gpu(
    context: CheckContext, problem: Callable[[Gpu], str | None], worst: Callable[[Gpu], float] = lambda gpu: 0.0
) -> dict[int, str]:
    """NVML index -> `problem` of that GPU, for GPUs that have one; the highest `worst` first."""
    answers = [(gpu, text) for gpu in context.gpus if (text := problem(gpu))]
    return {gpu.identity.index: text for gpu, text in sorted(answers, key=lambda each: -worst(each[0]))}


def no_reading(context: CheckContext, reason: str) -> CheckVerdict:
    """Skipped because none of the GPUs has the reading (`reason`), or because no GPU answers."""
    return skipped(reason if context.gpus else "no GPU answers")


def verdict_on_gpus(
    problems: dict[int, str], *, fatal: bool = False, remedy: str | None = None, commands: tuple[str, ...] | None = None
) -> CheckVerdict:
    """A warning, or a failure if `fatal`, about the GPUs of `problems`, the worst first: the message gives its
    problem and names the other GPUs; their problems are evidence.
    """
    text = next(iter(problems.values()))
    alike = tuple(index for index in problems if problems[index] == text)
    others = tuple(index for index in problems if problems[index] != text)
    also = f"; also {gpu_list(others)}" if others else ""
    evidence = {f"gpu {index}": problem for index, problem in problems.items()}
    answer = failed if fatal else warned
    return answer(f"{gpu_list(alike)}: {text}{also}", evidence, gpus=tuple(problems), remedy=remedy, commands=commands)


def agent_verdict(context: CheckContext, *checks: str, without: Iterable[int] = ()) -> CheckVerdict | None:
    """The agent's findings of these checks, the worst first; None: there are none. `without`: GPUs left out."""
    found = [(at, finding) for at, finding in context.findings(*checks) if at is not None and at not in without]
    found.sort(key=lambda each: (each[1].severity is not Severity.CRITICAL, each[0]))
    if not found:
        return None
    worst = found[0][1]
    advice = ADVICE.get(worst.remedy)
    action = f"{worst.action[:1].upper()}{worst.action[1:]}." if worst.action else ""
    verdict = verdict_on_gpus(
        {at: f.message for at, f in found if (f.check, f.severity) == (worst.check, worst.severity)},
        fatal=worst.severity is Severity.CRITICAL,
        remedy=" ".join(filter(None, (action, advice.text if advice else ""))),
        commands=advice.commands if advice else None,
    )
    evidence: dict[str, str] = {}
    for at, finding in found:
        before = evidence.get(f"gpu {at}")
        evidence[f"gpu {at}"] = f"{before}; {finding.message}" if before else finding.message
        evidence |= {f"gpu {at} {name}": text for name, text in finding.evidence.items() if name != "pci"}
    return verdict._replace(evidence=evidence)
