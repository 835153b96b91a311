"""Proof that a GPU works: the active checks of `gpuwatch diagnose` on it, then the operator's command.

Only idle GPUs are loaded, one at a time. A GPU that is in use is not validated; that is no verdict on it.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpuwatch.diagnose.active.results import Active
from gpuwatch.diagnose.active.run import DEADLINE_SECONDS, run_active
from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.checks.functional import FUNCTIONAL
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.model import CheckStatus
from gpuwatch.model.clock import Clock
from gpuwatch.model.text import visible
from gpuwatch.model.view import Validation, View
from gpuwatch.process.command import run_command

MAX_MESSAGE = 300


class ValidationCommand(NamedTuple):
    """The operator's: `{uuid}` and `{index}` in an argument are replaced by the GPU's. Empty `arguments`: none."""

    arguments: Sequence[str] = ()
    seconds: float = 600.0


class ValidationRun(NamedTuple):
    """`refused`: NVML index of a GPU that was not tried -> why."""

    validations: tuple[Validation, ...]
    refused: dict[int, str]


def validate(
    view: View,
    indexes: frozenset[int],
    clock: Clock,
    command: ValidationCommand | None = None,
    *,
    library: str = "",
    progress: Callable[[str], None] = lambda text: None,
    run: Callable[..., Active] = run_active,
) -> ValidationRun:
    """Validate the GPUs at these NVML indexes, as `run` tests them. Never raises; `clock` dates the results.

    A GPU passes when every check was tried on each of its devices, none failed, and the command ended with 0.
    """
    at = clock.time()
    active = run(view, selected=indexes, library=library, deadline=DEADLINE_SECONDS, progress=progress)
    uuids = {s.identity.index: s.identity.uuid for s in view.snapshot.statuses if s.identity.index in indexes}
    found: list[Validation] = []
    refused = {index: "NVML lists no such GPU" for index in indexes - uuids.keys()}
    facts = NodeFacts(at=at, view=view, active=active)
    for index, uuid in sorted(uuids.items()):
        message = _failed_check(facts, index, indexes)
        runs = [run for run in active.runs if run.index == index and run.peer is None]
        not_tried = next((f"{run.test}: {run.refused}" for run in runs if run.refused), "")
        if not runs:
            not_tried = "it has no device to test, as a GPU in MIG mode without instances"
        if not message and not_tried:
            refused[index] = not_tried
            continue
        if not message and command is not None and command.arguments:
            progress(f"GPU {index}: {command.arguments[0]}")
            ended = run_command(command.arguments, command.seconds, {"uuid": uuid, "index": str(index)})
            if ended.status != 0:
                status = "" if ended.status is None else f"exit status {ended.status}; "
                message = f"{command.arguments[0]}: {status}{ended.output}"
        found.append(
            Validation(
                gpu=uuid,
                at=at,
                boot_id=view.snapshot.host.boot_id,
                passed=not message,
                message=visible(message)[:MAX_MESSAGE],
            )
        )
    return ValidationRun(tuple(found), refused)


def _failed_check(facts: NodeFacts, index: int, indexes: frozenset[int]) -> str:
    """The first check that fails for the GPU, else empty; copies between GPUs are judged among all that were tried."""
    for check in FUNCTIONAL:
        selected = indexes if check.id == "X04" else frozenset({index})
        verdict = check.judge(CheckContext(facts, selected=selected))
        if verdict.result is CheckStatus.FAIL and (check.id != "X04" or index in verdict.gpus):
            return f"{check.id}: {verdict.message}"
    return ""
