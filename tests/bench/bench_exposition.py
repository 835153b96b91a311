"""Renders one View with gpuwatch and with prometheus_client, in one run, and prints both.

    python -m tests.bench.bench_exposition

Both get the same View and must yield the same series. The peer is a custom collector, the fastest form that
prometheus_client offers for values which are read elsewhere.
"""

import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.native import collect
from gpuwatch.model.view import View
from tests.model.view_factory import full_view

CONFIG = MetricsConfig(processes=True)


class Peer:
    """The rows of METRICS through prometheus_client's families."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._labels: dict[str, list[str]] = {}

    def collect(self) -> Iterator[Metric]:
        for family in collect(self.view, CONFIG):
            kind = CounterMetricFamily if family.type == "counter" else GaugeMetricFamily
            made = kind(family.name, family.help)
            for (subject, own), value in family.samples:
                labels = self._subject(subject) | {
                    name: text for name, text in zip(family.labels, own, strict=True) if text
                }
                made.add_sample(family.name, labels, value)
            yield made

    def _subject(self, text: str) -> dict[str, str]:
        """Parsed once for each subject, as a collector would hold ready."""
        if text not in self._labels:
            self._labels[text] = [part.partition("=") for part in text.split(",") if part]
        return {name: value.strip('"') for name, _, value in self._labels[text]}


def timed(call: Callable[[int], Any], rounds: int) -> float:
    """Median seconds of a call; it is given the number of the round."""
    call(0)
    seconds = []
    for number in range(1, rounds + 1):
        start = time.perf_counter()
        call(number)
        seconds.append(time.perf_counter() - start)
    return median(seconds)


def compare(name: str, views: list[View], rounds: int) -> float:
    """Print one line; the ratio peer / gpuwatch. Views alternate, so that numbers change as on a living node."""
    encoder, peer, registry = Encoder(), Peer(views[0]), CollectorRegistry()
    registry.register(peer)

    def theirs(number: int) -> bytes:
        peer.view = views[number % len(views)]
        return generate_latest(registry)

    def collected(number: int) -> Any:
        return collect(views[number % len(views)], CONFIG)

    def ours(number: int) -> bytes:
        return encoder.encode(collected(number))

    samples = sum(len(family.samples) for family in collect(views[0], CONFIG))
    assert series(ours(0)) == series(theirs(0)), "the two pages differ"
    rows, mine, peers = timed(collected, rounds), timed(ours, rounds), timed(theirs, max(rounds // 5, 3))
    print(
        f"{name}: {samples} series; gpuwatch {mine * 1e3:.2f} ms ({mine / samples * 1e6:.2f} us/series, "
        f"of it rows {rows * 1e3:.2f} ms); prometheus_client {peers * 1e3:.2f} ms; {peers / mine:.1f} times faster"
    )
    return peers / mine


def series(page: bytes) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
    """What a page says, in no order."""
    families = text_string_to_metric_families(page.decode())
    return {(s.name, frozenset(s.labels.items()), s.value) for family in families for s in family.samples}


def main() -> None:
    """One node of eight GPUs, and as many GPUs as make 20,000 series."""
    compare("8 GPUs", [full_view(8, seed=seed) for seed in (1, 2)], 100)
    compare("20,000 series", [full_view(61, seed=seed) for seed in (1, 2)], 20)


if __name__ == "__main__":
    main()
