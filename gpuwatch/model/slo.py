"""Latency targets: the annotation `gpuwatch.io/slo` names a Prometheus histogram, a quantile and its bound.

Two processes read it: the one that fetches a pod's page needs the histogram, the tuner needs the target.
"""

import re
from typing import NamedTuple

from gpuwatch.model.consent import SLO
from gpuwatch.model.errors import GpuwatchError

TARGET = re.compile(
    r"([A-Za-z_:][A-Za-z0-9_:]{0,99}) +p([0-9]{2}(?:\.[0-9]{1,2})?) *<= *([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(ms|s)"
)
MOST_TARGETS = 3
LOWEST, LONGEST = 50.0, 3600.0
"""Lowest quantile in percent: a lower one does not limit the longest waits. Largest bound in seconds."""

SHOWN = 140
"""Characters that an error quotes of a malformed value: no annotation that is kept is longer."""


class Target(NamedTuple):
    """`quantile` (0..1) of the histogram `name` is to be at most `seconds`."""

    name: str
    quantile: float
    seconds: float

    def __str__(self) -> str:
        return f"{self.name} p{100 * self.quantile:g} <= {self.seconds:g} s"


def slo_targets(text: str) -> tuple[Target, ...]:
    """`vllm:e2e_request_latency_seconds p95 <= 2s`, up to three of them with `;` between.

    Raises GpuwatchError: the value of the annotation has another form.
    """
    found = {part: _target(part.strip()) for part in text.split(";")}
    targets = tuple(target for target in found.values() if target is not None)
    wrong = [f"{part.strip()[:SHOWN]!r} is no target" for part, target in found.items() if target is None]
    if wrong or len(targets) > MOST_TARGETS:
        why = next(iter(wrong), f"there are {MOST_TARGETS} targets at most")
        raise GpuwatchError(f"{SLO} is {text[:SHOWN]!r}", why, "write HISTOGRAM pQUANTILE <= BOUND, as x p95 <= 2s")
    return targets


def _target(text: str) -> Target | None:
    found = TARGET.fullmatch(text)
    if found is None:
        return None
    percent, bound = float(found[2]), float(found[3]) / (1000 if found[4] == "ms" else 1)
    return Target(found[1], round(percent / 100, 4), bound) if percent >= LOWEST and 0 < bound <= LONGEST else None
