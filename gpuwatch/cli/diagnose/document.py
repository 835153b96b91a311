"""The output of `gpuwatch diagnose` for scripts: the document, the verdict and the exit code."""

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.words import utc
from gpuwatch.diagnose.baseline.inventory import inventory
from gpuwatch.diagnose.check import Level
from gpuwatch.diagnose.checks.nvml import LIBRARY_NOT_FOUND
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.model import CheckStage, CheckStatus, Diagnosis
from gpuwatch.model.finding import Health

EXIT_CODES = {Health.HEALTHY: 0, Health.DEGRADED: 3, Health.FAILED: 4, Health.UNKNOWN: 1}
DENIED = 6

VERDICTS = {CheckStatus.FAIL: Health.FAILED, CheckStatus.WARN: Health.DEGRADED, CheckStatus.PASS: Health.HEALTHY}
"""The worst result decides; where all checks were skipped, the health is unknown."""

OF_GPUS = CheckStage.HEALTH
"""Where all of this was skipped, no GPU was found: that is not healthy."""


class DiagnosisDocument(Envelope, frozen=True, kw_only=True):
    """The Envelope of `diagnose`: `items` are the checks, `first` the one to begin with; `unread`: sections that
    could not be read and why; `inventory`: what the node is made of.
    """

    verdict: Health
    first: str | None
    level: Level
    root: str
    unread: dict[str, str]
    inventory: dict[str, str]


def document(diagnosis: Diagnosis, facts: NodeFacts, level: Level) -> DiagnosisDocument:
    """The document for scripts."""
    first = diagnosis.first
    return DiagnosisDocument(
        kind="Diagnosis",
        node=diagnosis.node,
        at=utc(diagnosis.at),
        items=diagnosis.results,
        verdict=verdict(diagnosis),
        first=first.id if first else None,
        level=level,
        root=diagnosis.root,
        unread=facts.unread,
        inventory=inventory(facts),
    )


def verdict(diagnosis: Diagnosis) -> Health:
    """The health of the node by all results."""
    there = {result.result for result in diagnosis.results}
    of_gpus = {result.result for result in diagnosis.results if result.stage is OF_GPUS}
    found = next((health for result, health in VERDICTS.items() if result in there), Health.UNKNOWN)
    return Health.UNKNOWN if found is Health.HEALTHY and of_gpus == {CheckStatus.SKIP} else found


def exit_code(diagnosis: Diagnosis, facts: NodeFacts) -> int:
    """The verdict as the program's exit code."""
    health = verdict(diagnosis)
    return DENIED if health is Health.UNKNOWN and facts.denied else EXIT_CODES[health]


def is_nothing_there(facts: NodeFacts) -> bool:
    """Whether it is known that the machine has neither an NVIDIA GPU nor a driver, not even one that was installed."""
    kernel, sources = facts.kernel, facts.view.snapshot.sources if facts.view else ()
    has_library = all(source.code != LIBRARY_NOT_FOUND for source in sources)
    if facts.bus is None or facts.bus or kernel is None or has_library:
        return False
    return not kernel.is_loaded and not any((kernel.installed or {}).values())
