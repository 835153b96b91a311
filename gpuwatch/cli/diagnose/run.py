"""One diagnosis: gather facts, run the active checks, judge, print."""

import time
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.cli.console.document import to_json
from gpuwatch.cli.console.options import find_gpu
from gpuwatch.cli.console.session import Session, progress
from gpuwatch.cli.console.terminal import UNICODE
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.diagnose import compare
from gpuwatch.cli.diagnose.document import DiagnosisDocument, document, exit_code, is_nothing_there
from gpuwatch.cli.diagnose.screen import Screen
from gpuwatch.cli.diagnose.source import diagnosis_target
from gpuwatch.diagnose.active.run import DEADLINE_SECONDS, run_active, unavailable
from gpuwatch.diagnose.baseline.comparison import SavedDiagnosis
from gpuwatch.diagnose.baseline.expectation import Expectation
from gpuwatch.diagnose.bundling.allowed_facts import BundleContents
from gpuwatch.diagnose.bundling.bundle import write_bundle
from gpuwatch.diagnose.check import CheckContext, Level
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.engine import diagnose
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.gathering.gather import SECONDS, DiagnosisTarget, gather
from gpuwatch.diagnose.model import CheckStage, CheckStatus, Diagnosis
from gpuwatch.model.errors import GpuwatchError, NoGpuStack

RESERVE = 1.0
"""Seconds of a budget, at most half of it, for starting Python, judging and printing."""

BUNDLE_WIDTH = 100


class DiagnoseOptions(NamedTuple):
    """The options of the command. `started`: monotonic; `seconds`: the budget from then on."""

    output: str
    started: float
    level: Level
    stages: frozenset[CheckStage] | None
    gpus: tuple[str, ...]
    active: bool
    force: bool
    cuda_library: str
    root: str
    seconds: float | None
    expect: Expectation
    write_expect: Path | None
    compare: SavedDiagnosis | None
    bundle: Path | None
    kubeconfig: str
    node_name: str


class FinishedDiagnosis(NamedTuple):
    """A diagnosis with all it came from."""

    facts: NodeFacts
    diagnosis: Diagnosis
    document: DiagnosisDocument


def run(session: Session, options: DiagnoseOptions) -> int:
    """Diagnose and print; the exit code.

    Raises:
        NoGpuStack: there is nothing to diagnose.
        GpuwatchError: the source does not answer, or a file cannot be written.
    """
    with diagnosis_target(session, options.root, options.node_name, options.kubeconfig) as target:
        finished = _finished(session, options, target)
        if options.bundle is not None:
            _save_bundle(session, options.bundle, target, finished)
        if options.write_expect is not None:
            compare.write_expectation(session, options.write_expect, finished.facts)
        if options.compare is not None:
            return compare.compare(session, options.compare, to_json(finished.document), options.output)
    terminal, diagnosis = session.terminal, finished.diagnosis
    if options.output in ("json", "yaml"):
        terminal.document(finished.document, options.output)
    elif options.output == "name":
        wrong = [result.id for result in diagnosis.results if result.result in (CheckStatus.FAIL, CheckStatus.WARN)]
        terminal.print(*wrong)
    else:
        wide = options.output == "wide" or session.verbose > 0
        screen = Screen(Words(terminal.glyphs, finished.facts.at), terminal.width, wide=wide)
        terminal.show(*screen.lines(diagnosis, finished.facts))
    return exit_code(diagnosis, finished.facts)


def _finished(session: Session, options: DiagnoseOptions, target: DiagnosisTarget) -> FinishedDiagnosis:
    until = time.monotonic() + _seconds_left(options, DEADLINE_SECONDS)
    with progress(session, "looking") as advance:
        seconds = _seconds_left(options, SECONDS[options.level])
        facts = gather(
            target, level=options.level, seconds=seconds, progress=lambda _, done, all_: advance("", done, all_)
        )
    if is_nothing_there(facts) and options.expect.gpus is None:
        why = "this machine has neither an NVIDIA GPU nor a driver"
        raise NoGpuStack("nothing to diagnose", why, "run it on a GPU node, or try --source sim")
    case = CheckContext(facts, target.config, options.expect, _selected(facts, options.gpus))
    if options.active:
        case = case._replace(facts=_with_active(session, options, case, until))
    found = diagnose(case, CHECKS, level=options.level, stages=options.stages, active=options.active)
    return FinishedDiagnosis(case.facts, found, document(found, case.facts, options.level))


def _seconds_left(options: DiagnoseOptions, default: float) -> float:
    """Of the budget, if there is one."""
    if options.seconds is None:
        return default
    return max(0.0, options.started + options.seconds - min(RESERVE, options.seconds / 2) - time.monotonic())


def _selected(facts: NodeFacts, gpus: tuple[str, ...]) -> frozenset[int] | None:
    """NVML indexes; a number is taken as one where no known GPU could have that name.

    Raises:
        UsageError: no GPU has such a name.
    """
    if not gpus:
        return None
    known = facts.view.snapshot.statuses if facts.view else ()
    if facts.view is None or (not known and all(gpu.isdigit() for gpu in gpus)):
        return frozenset(int(gpu) for gpu in gpus if gpu.isdigit())
    return frozenset(find_gpu(facts.view, gpu).index for gpu in gpus)


def _with_active(session: Session, options: DiagnoseOptions, case: CheckContext, until: float) -> NodeFacts:
    """With the results of the active checks, or why they were not run."""
    facts = case.facts
    reason = unavailable(live=facts.live, library=options.cuda_library)
    if reason is None and facts.view is None:
        reason = "it is not known which GPUs there are"
    if reason is not None or facts.view is None:
        return replace(facts, unread={**facts.unread, "active": reason or ""})
    with progress(session, "working") as advance:
        active = run_active(
            facts.view,
            selected=case.selected,
            force=options.force,
            deadline=max(0.0, until - time.monotonic()),
            library=options.cuda_library,
            progress=lambda text: advance(text, 0, 0),
        )
    return replace(facts, active=active)


def _save_bundle(session: Session, path: Path, target: DiagnosisTarget, finished: FinishedDiagnosis) -> None:
    """Write it, and print its place and what it lacks to stderr."""
    screen = Screen(Words(UNICODE, finished.facts.at), BUNDLE_WIDTH, wide=True)
    lines = (line.plain.rstrip() for line in screen.lines(finished.diagnosis, finished.facts))
    try:
        events = target.agent.events() if target.agent else None
    except GpuwatchError:  # a bundle without events is better than none
        events = None
    contents = BundleContents(
        facts=finished.facts,
        places=target.places,
        config=target.config,
        document=to_json(finished.document),
        screen="\n".join(lines) + "\n",
        events=events,
    )
    written = write_bundle(path, contents)
    size = max(1, written.bytes >> 10)
    session.terminal.hint(f"{path}: {written.files} files, {size} KiB; review it before you share it")
    if written.missing:
        session.terminal.hint(f"its README.txt names {len(written.missing)} missing things")
