"""What gpuwatch itself has set on GPUs, by its record: whose it is, and whether anybody still answers for it."""

from gpuwatch.diagnose.check import CheckContext
from gpuwatch.model.setting import Knob, Setting

ALIVE_SECONDS = 60.0
"""A tuner beats every few seconds."""


def settings(context: CheckContext) -> tuple[Setting, ...]:
    """Everything that is recorded."""
    return context.facts.record.settings if context.facts.record else ()


def held(context: CheckContext, knob: Knob) -> frozenset[int]:
    """NVML indexes of GPUs whose `knob` gpuwatch has set."""
    uuids = {setting.uuid for setting in settings(context) if setting.knob == knob}
    return frozenset(status.identity.index for status in context.statuses if status.identity.uuid in uuids)


def moment(context: CheckContext) -> float:
    """Unix time of what is judged: a recording is judged later than it was made."""
    return context.facts.view.snapshot.at if context.facts.view else context.facts.at


def is_tuned(context: CheckContext) -> bool:
    """Whether a living tuner answers for what is recorded."""
    beat = context.facts.tuner
    return beat is not None and beat.mode == "enforce" and abs(moment(context) - beat.at) <= ALIVE_SECONDS
