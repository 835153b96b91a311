"""One row of the METRICS table, and the samples a row gives for one View.

A sample's labels come in two parts: the text of its subject (a GPU, a GPU instance or nothing), made once for a View,
and the values of the row's own labels. So a profile is another way to name subjects, and the encoder can cache by both.
"""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from gpuwatch.metrics.labelled_view import Scene, SubjectKey
from gpuwatch.model.snapshot import Gpu

Type = Literal["gauge", "counter", "info", "stateset"]
Scope = Literal["node", "gpu", "instance", "any"]
"""What samples are about: the node; a GPU; a GPU or a GPU instance; a GPU or the node."""
Key = tuple[str, tuple[str | None, ...]]
"""Label text of the subject, and values of the row's own labels; a label whose value is None is left out."""
Sample = tuple[Key, float]
T = TypeVar("T")
Samples = Callable[[T], list[Sample]]
Parts = Iterable[tuple[tuple[str | None, ...], float | None]]
"""Values of a row's own labels, and the number; None where it is not known."""

PREFIX = "gpuwatch_"
UNITS = ("bytes_per_second", "bytes", "watts", "joules", "celsius", "hertz", "seconds", "ratio")


class Family(NamedTuple):
    """A named group of samples, ready to be encoded. `style` writes a number."""

    name: str
    type: Type
    help: str
    labels: tuple[str, ...]
    samples: list[Sample]
    style: Callable[[float], str] = repr

    @property
    def unit(self) -> str:
        """The base unit at the end of the name, as OpenMetrics wants it; empty when there is none."""
        return unit(self.name)


class Metric(NamedTuple, Generic[T]):
    """One row: `name` without the prefix, `labels` beyond the subject's, `samples` from a `T` (for METRICS, a Scene).

    `states`: exactly one sample of a subject is 1. `owned`: gpuwatch keeps this value itself, so it stays when the data
    has gone stale. `opt_in`: off by default.
    """

    name: str
    help: str
    samples: Samples[T]
    labels: tuple[str, ...] = ()
    scope: Scope = "gpu"
    states: bool = False
    owned: bool = False
    opt_in: bool = False

    @property
    def type(self) -> Type:
        """Told by the name, as Prometheus' naming rules have it."""
        if self.states:
            return "stateset"
        return "counter" if self.name.endswith("_total") else "info" if self.name.endswith("_info") else "gauge"

    def family(self, subject: T) -> Family:
        """What this row says about `subject`; no samples where nothing is known."""
        return Family(PREFIX + self.name, self.type, self.help, self.labels, self.samples(subject))


def unit(name: str) -> str:
    """The base unit in a metric's name."""
    stem = name.removesuffix("_total")
    return next((unit for unit in UNITS if stem.endswith("_" + unit)), "")


def read(path: str, *, mig: bool = False) -> Samples[Scene]:
    """A value of every GPU by its path in `model.snapshot.Gpu`; with `mig` of every GPU instance too."""
    get = attrgetter(path)

    def samples(scene: Scene) -> list[Sample]:
        return [(key, value) for key, source in _sources(scene, mig) if (value := get(source)) is not None]

    return samples


def split(*, mig: bool = False, **paths: str) -> Samples[Scene]:
    """Several values of every GPU under one label: label value -> path."""
    getters = [((value,), attrgetter(path)) for value, path in paths.items()]

    def samples(scene: Scene) -> list[Sample]:
        return [
            ((subject, own), value)
            for (subject, _), source in _sources(scene, mig)
            for own, get in getters
            if (value := get(source)) is not None
        ]

    return samples


def each(rows: Callable[[Gpu], Parts]) -> Samples[Scene]:
    """As many values of every GPU as it has parts: links, reasons, counters."""

    def samples(scene: Scene) -> list[Sample]:
        return [
            ((subject, own), value) for (subject, _), gpu in scene.gpus for own, value in rows(gpu) if value is not None
        ]

    return samples


def entries(path: str) -> Samples[Scene]:
    """The entries of a mapping: its key is the label."""
    get = attrgetter(path)
    return each(lambda gpu: (((name,), value) for name, value in get(gpu).items()))


def node(rows: Callable[[T], Parts]) -> Samples[T]:
    """Values of the node as a whole, without a subject."""

    def samples(source: T) -> list[Sample]:
        return [(("", own), value) for own, value in rows(source) if value is not None]

    return samples


def summed(samples: Iterable[Sample]) -> list[Sample]:
    """Add up samples that carry the same labels, since a series may appear once only."""
    totals: dict[Key, float] = {}
    for key, value in samples:
        totals[key] = totals[key] + value if key in totals else value
    return list(totals.items())


def distinct(keys: Iterable[Key]) -> list[Sample]:
    """Each key once, with the value 1."""
    return [(key, 1) for key in dict.fromkeys(keys)]


def _sources(scene: Scene, mig: bool) -> list[tuple[SubjectKey, Any]]:
    return [*scene.gpus, *scene.instances] if mig else scene.gpus
