"""Writes families as Prometheus text 0.0.4 or OpenMetrics 1.0.

Only the numbers of a page change from one snapshot to the next. So the text before each number is made once for each
series and kept until the series vanishes.
"""

from collections.abc import Iterable
from functools import cache
from math import isfinite
from operator import itemgetter

from gpuwatch.metrics.metric import Family, Key, Type, label_text, unit

_value = itemgetter(1)


class Encoder:
    """Keeps the text of the series that it has written. Not thread-safe."""

    def __init__(self) -> None:
        self._known: dict[str, dict[Key, str]] = {}

    def __len__(self) -> int:
        """The number of series whose text is kept."""
        return sum(map(len, self._known.values()))

    def encode(self, families: Iterable[Family], *, openmetrics: bool = False) -> bytes:
        """One exposition. Numbers that are not finite are left out; a family without samples is not written."""
        lines: list[str] = []
        for family in families:
            samples = self._samples(family)
            if samples:
                lines.append(_head(family.name, family.type, family.help, openmetrics))
                lines += samples
        lines.append("# EOF\n" if openmetrics else "")
        return "\n".join(lines).encode()

    def _samples(self, family: Family) -> list[str]:
        known = self._known.setdefault(family.name, {})
        samples, style = family.samples, family.style
        if not isfinite(sum(map(_value, samples))):  # the sum is not finite where one value is not
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


@cache
def _head(name: str, type_: Type, text: str, openmetrics: bool) -> str:
    """The text format has no info and no state set; both are gauges there. OpenMetrics names the family without the
    suffix of its samples. It allows no counter that does not end in `_total`, as DCGM's do not. A state set would
    need a label with the name of the family, hence a gauge.
    """
    if not openmetrics:
        return f"# HELP {name} {text}\n# TYPE {name} {'counter' if type_ == 'counter' else 'gauge'}"
    stem, kind = name, str(type_)
    if type_ == "counter":
        stem = name.removesuffix("_total")
        kind = "counter" if stem != name else "unknown"
    elif type_ == "info":
        stem = name.removesuffix("_info")
    elif type_ == "stateset":
        kind = "gauge"
    base = unit(name)
    lines = [f"# TYPE {stem} {kind}", *([f"# UNIT {stem} {base}"] if base and kind != "info" else ())]
    return "\n".join([*lines, f"# HELP {stem} {text}"])
