"""A row of the table of checks, the facts it judges, and its verdict."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Literal, NamedTuple

from gpuwatch.config import Config
from gpuwatch.diagnose.baseline.expectation import Expectation
from gpuwatch.diagnose.facts import NodeFacts, Section
from gpuwatch.diagnose.model import CheckStage, CheckStatus
from gpuwatch.model.finding import Finding
from gpuwatch.model.snapshot import Gpu, GpuStatus
from gpuwatch.tuning.model.setting import Setting

Level = Literal["quick", "full"]


class CheckVerdict(NamedTuple):
    """The result of a check. `remedy` and `commands` None: those of the row. `gpus`: NVML indexes of those at fault."""

    result: CheckStatus
    message: str = ""
    evidence: dict[str, str] = {}
    gpus: tuple[int, ...] = ()
    remedy: str | None = None
    commands: tuple[str, ...] | None = None


passed = partial(CheckVerdict, CheckStatus.PASS)
"""The state is as expected; `message` gives the values in a few words."""

warned = partial(CheckVerdict, CheckStatus.WARN)
"""Work continues, but the operator of the node should know."""

failed = partial(CheckVerdict, CheckStatus.FAIL)
"""Some or all GPUs cannot work because of this."""

skipped = partial(CheckVerdict, CheckStatus.SKIP)
"""Nothing to judge here (no NVSwitch, no MIG, no Kubernetes), or it could not be read; `message` says which."""


class CheckContext(NamedTuple):
    """All that a check may use. `selected`: requested NVML indexes; None: all."""

    facts: NodeFacts
    config: Config = Config()
    expect: Expectation = Expectation()
    selected: frozenset[int] | None = None

    def selects(self, index: int) -> bool:
        """Whether the GPU at this NVML index was requested."""
        return self.selected is None or index in self.selected

    @property
    def indexes(self) -> frozenset[int]:
        """NVML indexes of the requested GPUs, those that NVML cannot identify included."""
        view = self.facts.view
        known = {status.identity.index for status in view.snapshot.statuses} if view else set()
        unanswered = view.snapshot.unanswered if view else ()
        return frozenset(index for index in (*known, *unanswered) if self.selects(index))

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """Fresh samples of the requested GPUs, by index; empty without a View."""
        view = self.facts.view
        return tuple(gpu for gpu in view.snapshot.gpus if self.selects(gpu.identity.index)) if view else ()

    @property
    def statuses(self) -> tuple[GpuStatus, ...]:
        """Every requested GPU that NVML ever listed, whether it answers or not."""
        view = self.facts.view
        return tuple(s for s in view.snapshot.statuses if self.selects(s.identity.index)) if view else ()

    @property
    def sampled_at(self) -> float:
        """Unix time of the View, else of the facts: a recording is judged later than it was made."""
        return self.facts.view.snapshot.at if self.facts.view else self.facts.at

    @property
    def recorded_settings(self) -> tuple[Setting, ...]:
        """Every setting that, by gpuwatch's own record, it made on this node's GPUs."""
        return self.facts.record.settings if self.facts.record else ()

    def findings(self, *checks: str) -> Iterator[tuple[int | None, Finding]]:
        """The agent's findings of these checks, each with its NVML index (None: the node)."""
        view = self.facts.view
        index = {status.identity.uuid: status.identity.index for status in view.snapshot.statuses} if view else {}
        for finding in view.judgement.findings if view else ():
            at = index.get(finding.gpu) if finding.gpu else None
            if finding.check in checks and (at is None or self.selects(at)):
                yield at, finding


class DiagnosticCheck(NamedTuple):
    """One row. `judge` is a pure function. It is called only when every section of `reads` was read and no check of
    `needs` has failed, and may rely on both.
    """

    id: str
    """A letter for the stage and two digits; never changes."""
    stage: CheckStage
    title: str
    """The state of a healthy node: `the nvidia module is loaded`."""
    how: str
    """What it reads, for documents: file, NVML call, API object."""
    remedy: str
    """What the operator does if it warns or fails. A verdict may have a more precise one."""
    judge: Callable[[CheckContext], CheckVerdict]
    needs: tuple[str, ...] = ()
    """Checks that must not have failed for this one to be judged."""
    reads: tuple[Section, ...] = ()
    commands: tuple[str, ...] = ()
    """What to run next, in order; may name `{node}` and `{gpu}` (the first GPU at fault)."""
    level: Level = "quick"
    """full: left out of a quick diagnosis."""
    active: bool = False
    """Puts work on GPUs, hence runs only on request (--active)."""
    each: bool = False
    """Judges each GPU by itself: where a check of `needs` fails for some GPUs only, it judges the others."""


def spans(numbers: Iterable[int]) -> str:
    """`0-2, 5, 6`."""
    rows: list[list[int]] = []
    for number in sorted(numbers):
        if rows and rows[-1][-1] == number - 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return ", ".join(f"{row[0]}-{row[-1]}" if len(row) > 2 else ", ".join(map(str, row)) for row in rows)
