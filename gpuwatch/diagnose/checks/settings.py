"""What gpuwatch itself has set on GPUs, by its record: whose it is, and whether anybody still answers for it."""

from gpuwatch.diagnose.check import Case
from gpuwatch.model.setting import Knob, Setting

ALIVE_SECONDS = 60.0
"""A tuner beats every few seconds."""


def settings(case: Case) -> tuple[Setting, ...]:
    """Everything that is recorded."""
    return case.facts.record.settings if case.facts.record else ()


def held(case: Case, knob: Knob) -> frozenset[int]:
    """NVML indexes of GPUs whose `knob` gpuwatch has set."""
    uuids = {setting.uuid for setting in settings(case) if setting.knob == knob}
    return frozenset(status.identity.index for status in case.statuses if status.identity.uuid in uuids)


def moment(case: Case) -> float:
    """Unix time of what is judged: a recording is judged later than it was made."""
    return case.facts.view.snapshot.at if case.facts.view else case.facts.at


def is_tuned(case: Case) -> bool:
    """Whether a living tuner answers for what is recorded."""
    beat = case.facts.tuner
    return beat is not None and beat.mode == "enforce" and abs(moment(case) - beat.at) <= ALIVE_SECONDS
