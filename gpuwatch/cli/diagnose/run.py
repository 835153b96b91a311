"""One diagnosis: find its target, gather facts, run the active checks, judge, print.

The target is this machine, its root mounted elsewhere, a copied tree, or a simulated node.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.agent.client import AgentSearch, find_agent
from gpuwatch.cli.console.document import to_json
from gpuwatch.cli.console.options import find_gpu
from gpuwatch.cli.console.session import Session, progress
from gpuwatch.cli.console.terminal import UNICODE
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.diagnose.document import DiagnosisDocument, document, exit_code, is_nothing_there
from gpuwatch.cli.diagnose.screen import Screen
from gpuwatch.cli.look.source import SourceSpec, named_agent, node, parse_source
from gpuwatch.config import Backend, Config
from gpuwatch.config.named_file import replacing
from gpuwatch.diagnose.active.run import DEADLINE_SECONDS, run_active, unavailable
from gpuwatch.diagnose.baseline.expectation import Expectation, measured, text
from gpuwatch.diagnose.bundling.allowed_facts import BundleContents
from gpuwatch.diagnose.bundling.bundle import write_bundle
from gpuwatch.diagnose.bundling.opening import open_archive
from gpuwatch.diagnose.check import CheckContext, Level
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.engine import diagnose
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.gathering.gather import AGENT_SECONDS, SECONDS, DiagnosisTarget, gather
from gpuwatch.diagnose.model import CheckStage, CheckStatus, Diagnosis
from gpuwatch.diagnose.places import RECORDED, Places
from gpuwatch.host.tree import beneath
from gpuwatch.model.errors import GpuwatchError, NoGpuStack, UsageError

RESERVE = 1.0
"""Seconds of a budget, at most half of it, for starting Python, judging and printing."""

BUNDLE_WIDTH = 100

OF_A_HOST = ("etc", "proc", "sys", "usr", "lib", RECORDED)
"""A mounted or copied root has at least one of them."""

DRIVER_ONLY = "a capture records the driver alone; name a copy of the host's files with --root"


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
    with _diagnosis_target(session, options.root, options.node_name, options.kubeconfig) as target:
        finished = _finished(session, options, target)
        if options.bundle is not None:
            _save_bundle(session, options.bundle, target, finished)
        if options.write_expect is not None:
            body = text(measured(finished.facts), finished.facts.node)
            path = options.write_expect
            try:
                with replacing(path) as file:
                    file.write(body.encode())
            except OSError as error:
                raise GpuwatchError(f"cannot write {path}", error.strerror or str(error), "name another file") from None
            session.terminal.hint(f"{path}: compare other nodes with it: gpuwatch diagnose --expect {path}")
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
        reason = unavailable(live=facts.live, library=options.cuda_library)
        if reason is None and facts.view is None:
            reason = "it is not known which GPUs there are"
        if reason is not None or facts.view is None:
            facts = replace(facts, unread={**facts.unread, "active": reason or ""})
        else:
            with progress(session, "working") as advance:
                active = run_active(
                    facts.view,
                    selected=case.selected,
                    force=options.force,
                    deadline=max(0.0, until - time.monotonic()),
                    library=options.cuda_library,
                    progress=lambda text: advance(text, 0, 0),
                )
            facts = replace(facts, active=active)
        case = case._replace(facts=facts)
    found = diagnose(case, CHECKS, level=options.level, stages=options.stages, active=options.active)
    return FinishedDiagnosis(case.facts, found, document(found, case.facts, options.level))


def _seconds_left(options: DiagnoseOptions, default: float) -> float:
    """Seconds left of the budget; without one, `default`."""
    if options.seconds is None:
        return default
    return max(0.0, options.started + options.seconds - min(RESERVE, options.seconds / 2) - time.monotonic())


def _selected(facts: NodeFacts, gpus: tuple[str, ...]) -> frozenset[int] | None:
    """NVML indexes of the named GPUs; None: all. Where no GPU is known, numbers are taken as indexes.

    Raises:
        UsageError: no GPU has such a name, or none is known.
    """
    if not gpus:
        return None
    if facts.view is not None and facts.view.snapshot.statuses:
        return frozenset(find_gpu(facts.view, gpu).index for gpu in gpus)
    if names := [gpu for gpu in gpus if not gpu.isdigit()]:
        why = facts.unread.get("view") or "NVML lists no GPU"
        raise UsageError(f"no GPU matches {names[0]!r}", why, "name it by its index, or leave out --gpu")
    return frozenset(int(gpu) for gpu in gpus)


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


@contextmanager
def _diagnosis_target(session: Session, root: str, node_name: str, kubeconfig: str) -> Iterator[DiagnosisTarget]:
    """The target that the options name, for as long as the block runs: a simulation ends with it.

    Raises:
        UsageError: source and root do not go together, or there is no such root.
    """
    source = parse_source(session.source) if session.source else None
    config = session.config_or_defaults()
    with ExitStack() as stack:
        if Path(root).is_file():
            place = stack.enter_context(TemporaryDirectory(prefix="gpuwatch-tree-"))
            found = open_archive(Path(root), Path(place))
            if found.message:
                session.terminal.hint(f"{root}: left out: {found.message}")
            root = str(found.top)
        elif root != "/" and not Path(root).is_dir():
            raise UsageError(f"--root {root} is no folder", "", "name the top folder of a host's files, or a bundle")
        if root != "/" and not any(beneath(Path(root), folder).is_dir() for folder in OF_A_HOST):
            why = f"it has none of {', '.join(OF_A_HOST)}"
            raise UsageError(f"--root {root} holds no host", why, "name the folder where its / is mounted or copied to")
        places = Places.of(root, config.sources, config.state_dir)
        if source is not None and source.kind in ("sim", "agent") and not places.live:
            raise UsageError(
                f"--source {source.kind} and --root {root} are two nodes", "", "give one, or --source capture:FILE"
            )
        target = stack.enter_context(_without_names(session, source, places, config))
        yield target._replace(node=node_name, kubeconfig=kubeconfig)


@contextmanager
def _without_names(
    session: Session, source: SourceSpec | None, places: Places, config: Config
) -> Iterator[DiagnosisTarget]:
    if source is None and not places.live:
        yield DiagnosisTarget(places, config)
    elif source is None or (source.kind == "nvml" and places.live):
        backend = Backend()
        if places.root != "/":  # no library of the tree is loaded unless the user names it
            # the driver that is read drives the GPUs of the host whose files lie below the root
            sources = {name: getattr(places, name) for name in ("kmsg", "proc", "sys", "dev", "pod_resources")}
            config = replace(config, sources=replace(config.sources, **sources))
        # the running agent gets little time, because the driver can be read instead
        search = AgentSearch(None, "") if source else find_agent(config.agent, AGENT_SECONDS)
        if search.message:
            session.terminal.hint(search.message if search.client else f"read the driver: {search.message}")
        yield DiagnosisTarget(places, config, backend, search.client)
    elif source.kind == "agent":
        yield DiagnosisTarget(places, config, agent=named_agent(source, config))
    else:
        if not places.live:  # no reader but those of the diagnosis touches the tree
            paths = ("kmsg", "proc", "sys", "dev", "pod_resources", "machine_id", "pod_logs")
            disabled = ("kmsg", "podresources", "procfs", "pci")
            nowhere = replace(config.sources, disabled=disabled, **dict.fromkeys(paths, os.devnull))
            config = replace(config, sources=nowhere)
        with node(source, config) as (node_config, backend):
            if source.kind == "sim":
                simulated = Places.tree(Path(backend.target))
                # its tuner keeps its record beside its other state
                places = replace(simulated, state=node_config.state_dir) if node_config.state_dir else simulated
            hidden = DRIVER_ONLY if source.kind == "capture" and places.live else ""
            yield DiagnosisTarget(places, node_config, backend, files_hidden=hidden)
