"""What the tuner's own rules say of each GPU at this moment, where no tuner says it or another mode is asked about."""

from collections.abc import Mapping

from msgspec.structs import replace

from gpuwatch.cli.tune.inputs import Sight
from gpuwatch.config import TuningMode
from gpuwatch.model.consent import Consents
from gpuwatch.model.view import View
from gpuwatch.tuning.cycle.cycle import Inputs, Memory, cycle
from gpuwatch.tuning.cycle.ladder import seen_board
from gpuwatch.tuning.model.status import GpuTuning


def foreseen(view: View, sight: Sight, consents: Consents | None, mode: TuningMode) -> Mapping[str, GpuTuning]:
    """Every GPU by uuid, as the first cycle of a tuner in `mode` would judge it."""
    tuner = sight.tuner
    inputs = Inputs(
        view=view,
        fresh=True,
        now=0.0,
        at=view.snapshot.at,
        config=replace(sight.config.tuning, mode=mode),
        consents=consents,
        actuation=sight.actuation,
        boards={gpu.identity.uuid: seen_board(gpu) for gpu in view.snapshot.gpus},
        heard=tuner is None or tuner.guard is not False,
        stopped=sight.stop.words if sight.stop else "",
        classes=sight.config.checks.xids,
    )
    return {gpu.uuid: gpu for gpu in cycle(Memory(), inputs).gpus}
