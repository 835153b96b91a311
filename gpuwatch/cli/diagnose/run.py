"""One diagnosis from the first look to the last line: gather, put to work, judge, tell."""

import time
from pathlib import Path
from typing import NamedTuple

import click
from msgspec.structs import replace

from gpuwatch.cli.console.document import to_json, to_yaml
from gpuwatch.cli.console.progress import progress
from gpuwatch.cli.console.selection import find_gpu
from gpuwatch.cli.console.session import Session
from gpuwatch.cli.console.terminal import UNICODE
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.diagnose import bundle as diagnose_bundle
from gpuwatch.cli.diagnose import compare as diagnose_compare
from gpuwatch.cli.diagnose.document import DiagnosisDocument, document, exit_code, is_nothing_there
from gpuwatch.cli.diagnose.screen import Screen
from gpuwatch.cli.diagnose.source import ground
from gpuwatch.diagnose.active.run import DEADLINE_SECONDS, run_active, unavailable
from gpuwatch.diagnose.baseline.comparison import Document
from gpuwatch.diagnose.baseline.expectation import Expectation
from gpuwatch.diagnose.bundling.bundle import Contents
from gpuwatch.diagnose.check import CheckContext, Level
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.engine import diagnose
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.gathering.gather import SECONDS, Ground, gather
from gpuwatch.diagnose.model import CheckStage, CheckStatus, Diagnosis
from gpuwatch.model.errors import GpuwatchError, NoGpuStack
from gpuwatch.model.view import Events

RESERVE = 1.0
"""Seconds of a budget, at most half of it, for starting Python, judging and telling."""

BUNDLE_WIDTH = 100


class Wish(NamedTuple):
    """What the options say. `started`: monotonic; `seconds`: the budget from then on."""

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
    compare: Document | None
    bundle: Path | None
    kubeconfig: str
    node_name: str


class Told(NamedTuple):
    """A diagnosis with all it came from."""

    facts: NodeFacts
    diagnosis: Diagnosis
    document: DiagnosisDocument


def run(session: Session, wish: Wish) -> int:
    """Do what is wished; the exit code.

    Raises:
        NoGpuStack: there is nothing to diagnose.
        GpuwatchError: nobody answers, or a file cannot be written.
    """
    with ground(session, wish.root, wish.node_name, wish.kubeconfig) as place:
        told = _diagnosed(session, wish, place)
        if wish.bundle is not None:
            _save(session, wish.bundle, place, told)
        if wish.write_expect is not None:
            diagnose_compare.write_expectation(session, wish.write_expect, told.facts)
        if wish.compare is not None:
            return diagnose_compare.compare(session, wish.compare, to_json(told.document), wish.output)
    _print(session, wish.output, told)
    return exit_code(told.diagnosis, told.facts)


def _diagnosed(session: Session, wish: Wish, place: Ground) -> Told:
    until = time.monotonic() + _seconds(wish, DEADLINE_SECONDS)
    facts = _facts(session, wish, place)
    if is_nothing_there(facts) and wish.expect.gpus is None:
        why = "this machine has neither an NVIDIA GPU nor a driver"
        raise NoGpuStack("nothing to diagnose", why, "run it on a GPU node, or try --source sim")
    case = CheckContext(facts, place.config, wish.expect, _selected(facts, wish.gpus))
    if wish.active:
        case = case._replace(facts=_with_active(session, wish, case, until))
    found = diagnose(case, CHECKS, level=wish.level, stages=wish.stages, active=wish.active)
    return Told(case.facts, found, document(found, case.facts, wish.level))


def _seconds(wish: Wish, otherwise: float) -> float:
    """What a budget leaves, else as many as usual."""
    if wish.seconds is None:
        return otherwise
    return max(0.0, wish.started + wish.seconds - min(RESERVE, wish.seconds / 2) - time.monotonic())


def _facts(session: Session, wish: Wish, place: Ground) -> NodeFacts:
    with progress(session, "looking") as advance:
        seconds = _seconds(wish, SECONDS[wish.level])
        return gather(place, level=wish.level, seconds=seconds, progress=lambda _, done, all_: advance("", done, all_))


def _selected(facts: NodeFacts, gpus: tuple[str, ...]) -> frozenset[int] | None:
    """NVML indexes; a number is taken as one where no GPU is known that could go by it.

    Raises:
        UsageError: no GPU goes by a name.
    """
    if not gpus:
        return None
    known = facts.view.snapshot.statuses if facts.view else ()
    if facts.view is None or (not known and all(gpu.isdigit() for gpu in gpus)):
        return frozenset(int(gpu) for gpu in gpus if gpu.isdigit())
    return frozenset(find_gpu(facts.view, gpu).index for gpu in gpus)


def _with_active(session: Session, wish: Wish, case: CheckContext, until: float) -> NodeFacts:
    """With what the GPUs did, or why they were not put to work."""
    facts = case.facts
    reason = unavailable(live=facts.live, library=wish.cuda_library)
    if reason is None and facts.view is None:
        reason = "it is not known which GPUs there are"
    if reason is not None or facts.view is None:
        return replace(facts, unread={**facts.unread, "active": reason or ""})
    with progress(session, "working") as advance:
        active = run_active(
            facts.view,
            selected=case.selected,
            force=wish.force,
            deadline=max(0.0, until - time.monotonic()),
            library=wish.cuda_library,
            progress=lambda text: advance(text, 0, 0),
        )
    return replace(facts, active=active)


def _print(session: Session, output: str, told: Told) -> None:
    terminal = session.terminal
    if output == "json":
        click.echo(to_json(told.document))
    elif output == "yaml":
        click.echo(to_yaml(told.document))
    elif output == "name":
        wrong = [
            result.id for result in told.diagnosis.results if result.result in (CheckStatus.FAIL, CheckStatus.WARN)
        ]
        click.echo("\n".join(wrong), nl=bool(wrong))
    else:
        wide = output == "wide" or session.verbose > 0
        screen = Screen(Words(terminal.glyphs, told.facts.at), terminal.width, wide=wide)
        terminal.show(*screen.lines(told.diagnosis, told.facts))


def _save(session: Session, target: Path, place: Ground, told: Told) -> None:
    screen = Screen(Words(UNICODE, told.facts.at), BUNDLE_WIDTH, wide=True)
    text = "\n".join(line.plain.rstrip() for line in screen.lines(told.diagnosis, told.facts)) + "\n"
    contents = Contents(
        facts=told.facts,
        places=place.places,
        config=place.config,
        document=to_json(told.document),
        screen=text,
        events=_events(place),
    )
    diagnose_bundle.save(session, target, contents)


def _events(place: Ground) -> Events | None:
    """What an agent remembers; None without one, or where it does not answer."""
    try:
        return place.agent.events() if place.agent else None
    except GpuwatchError:
        return None
