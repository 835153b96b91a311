"""The demo's repairer, and sentences about what it does."""

import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial

from gpuwatch.agent.client import AgentClient, AgentViews
from gpuwatch.config import Config
from gpuwatch.diagnose.active.results import Active, DeviceRun
from gpuwatch.diagnose.validation import validate
from gpuwatch.model.clock import SystemClock
from gpuwatch.model.event import ActionEvent, Result
from gpuwatch.model.view import View
from gpuwatch.repair.repairer import Repairer
from gpuwatch.storage.store import Store

LOOK_SECONDS = 1.0
"""Between two looks: 10 s would be long for a demo."""

WORDS = {
    ("reset_gpu", Result.INTENDED): "resets {gpu}, which nothing uses any more: {why}",
    ("reset_gpu", Result.DONE): "has reset {gpu}, and it answers again",
    ("validate", Result.DONE): "has put {gpu} to work, and it passed",
}


def run_repairer(config: Config, boot_id: str | None, store: Store, ended: Callable[[float], bool]) -> None:
    """Run as `gpuwatch repairer` does, until `ended`; a reset that is under way is then abandoned."""
    clock = SystemClock()

    def wait(seconds: float) -> None:
        if ended(seconds):
            sys.exit()  # ends this thread only

    views, prove = AgentViews(AgentClient(config.agent.socket), clock), partial(validate, run=simulated_checks)
    repairer = Repairer(config, views, store, clock, boot_id, wait, prove)
    repairer.start()
    while True:
        repairer.step()
        wait(LOOK_SECONDS)


def simulated_checks(view: View, *, selected: Collection[int], **_: object) -> Active:
    """The active checks of GPUs that cannot compute: they pass unless the driver asks for a GPU's recovery."""
    gpus = [gpu for gpu in view.snapshot.gpus if gpu.identity.index in selected]
    bad = {gpu.identity.index: "the driver asks for its recovery" for gpu in gpus if gpu.recovery_action}
    found = [(gpu.identity.uuid, gpu.identity.index) for gpu in gpus]
    runs = (DeviceRun(test="vector_add", device=uuid, index=index, error=bad.get(index)) for uuid, index in found)
    return Active(runs=tuple(runs))


def repair_sentences(actions: Iterable[ActionEvent]) -> Iterator[tuple[str, str]]:
    """(actor, sentence) for each of the repairer's actions."""
    for each in actions:
        words = WORDS.get((each.action, each.result), "{action} of {gpu} failed: {detail}{why}")
        if each.actor == "repairer" and each.action != "repaired":
            gpu = each.target.removeprefix("gpu/")
            yield "repairer", words.format(gpu=gpu, action=each.action, why=each.why, detail=each.detail)
