"""Writes families as Prometheus text 0.0.4 or OpenMetrics 1.0.

Almost all of a page is the same from one snapshot to the next: only numbers change. So the text before each number is
made once for each series and kept until the series vanishes.
"""

from collections.abc import Iterable
from math import isfinite
from operator import itemgetter

from gpuwatch.metrics.metric import Family, Key, label_text

_value = itemgetter(1)


class Encoder:
    """Remembers the series it has written. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, dict[Key, str]] = {}

    def __len__(self) -> int:
        """How many series it remembers."""
        return sum(map(len, self._known.values()))

    def encode(self, families: Iterable[Family], *, openmetrics: bool = False) -> bytes:
        """One exposition. Numbers that are not finite are left out; a family without samples leaves nothing behind."""
        lines: list[str] = []
        for family in families:
            samples = self._samples(family)
            if samples:
                lines += _head(family, openmetrics) + samples
        lines.append("# EOF\n" if openmetrics else "")
        return "\n".join(lines).encode()

    def _samples(self, family: Family) -> list[str]:
        known = self._known.setdefault(family.name, {})
        samples, style = family.samples, family.style
        if not isfinite(sum(map(_value, samples))):  # the sum tells whether any is not
            samples = [sample for sample in samples if isfinite(_value(sample))]
        try:
            lines = [known[key] + style(+value) for key, value in samples]  # the plus makes numbers of booleans
        except KeyError:
            for key, _ in samples:
                if key not in known:
                    subject, own = key
                    text = ",".join(filter(None, (subject, label_text(**dict(zip(family.labels, own, strict=True))))))
                    known[key] = f"{family.name}{{{text}}} " if text else f"{family.name} "
            lines = [known[key] + style(+value) for key, value in samples]
        if len(known) > len(samples):
            self._known[family.name] = {key: known[key] for key, _ in samples}
        return lines


def _head(family: Family, openmetrics: bool) -> list[str]:
    """Text knows no info and no state set; both are gauges there. OpenMetrics names the family without the suffix its
    samples must have. A counter that does not end in `_total` (as DCGM's do not) may not be called one there. A state
    set would have to name its label after itself, hence a gauge.
    """
    if not openmetrics:
        type_ = "counter" if family.type == "counter" else "gauge"
        return [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {type_}"]
    type_ = str(family.type)
    name = family.name
    if type_ == "counter":
        name = name.removesuffix("_total")
        type_ = "counter" if name != family.name else "unknown"
    elif type_ == "info":
        name = name.removesuffix("_info")
    elif type_ == "stateset":
        type_ = "gauge"
    unit = [f"# UNIT {name} {family.unit}"] if family.unit and type_ != "info" else []
    return [f"# TYPE {name} {type_}", *unit, f"# HELP {name} {family.help}"]
