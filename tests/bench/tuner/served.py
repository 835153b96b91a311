"""Serving by what people wait for: `python -m tests.bench.tuner.served [--hours N] [--seed N] [--load WHAT]`.

A day of requests at a simulated server whose own page is the only word on how its users fare. The same requests are
served without a tuner; compared are the exact waits of all requests, not those of the page's buckets.

Beside it a rival with lookahead: seconds in which no prompt will be worked on at 780 MHz, the others 5 % below the
highest clock, which is more than the waits allow.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from gpuwatch.consents.progress import KEPT_SAMPLES
from gpuwatch.model.consent import Histogram
from gpuwatch.model.slo import slo_targets
from gpuwatch.model.snapshot import Activity, Clocks, Gpu, Identity, Power
from gpuwatch.tuning.cycle.gang_energy import GangState, after_orders, target, with_samples
from gpuwatch.tuning.energy.model import Terms, TrialPhase, clocks
from tests.bench.measure import table
from tests.bench.tuner.server import REQUEST, TOKEN, TOP, TTFT, Load, Second, Server, arrivals

STEP, LOWEST = 15e6, 780e6
LADDER = clocks((TOP - STEP * number for number in range(119)), top=TOP)
WIDE = f"{TTFT} p99 <= 1s; {TOKEN} p99 <= 100ms"
TIGHT = f"{TTFT} p99 <= 500ms; {TOKEN} p99 <= 75ms"
DECODE = f"{TTFT} p99 <= 1s; {TOKEN} p99 <= 50ms"
LOADS = (
    Load("bursts of 2, wide SLO", 5.0, 2.0, 2.0, WIDE),
    Load("bursts of 2, tight SLO", 5.0, 2.0, 2.0, TIGHT),
    Load("bursts of 5, above capacity, wide SLO", 5.0, 4.0, 5.0, WIDE),
    Load("half the load, bursts of 5, wide SLO", 2.5, 4.0, 5.0, WIDE),
    Load("decode only, bursts of 3", 15.0, 4.0, 3.0, DECODE, decode_only=True),
)
QUANTILES = ((TTFT, 0.99), (TOKEN, 0.99), (REQUEST, 0.95))


class Served(NamedTuple):
    """`saved`: of the joules of all requests, `most` with lookahead; `held`: share of the time at a held cap."""

    load: str
    requests: int
    saved: float
    most: float
    plain: tuple[float, ...]
    tuned: tuple[float, ...]
    held: float
    caps: str
    breaks: int


class Tuner:
    """One GPU and its page under `gang_energy`, the tuner's own part of a cycle."""

    def __init__(self, slo: str) -> None:
        self.targets = slo_targets(slo)
        self.state = GangState(ladder=LADDER, terms=Terms(latency="serving", slo=self.targets))
        self.energy, self.histograms = 0.0, {target.name: Histogram() for target in self.targets}

    def take(self, at: float, second: Second, server: Server) -> None:
        """One second more."""
        self.energy += second.joules
        gpu = Gpu(
            identity=Identity(index=0, uuid="GPU-0", pci_bus_id="0"),
            at=at,
            activity=Activity(graphics=second.engine, dram=second.dram, tensor=second.tensor, window_seconds=1.0),
            power=Power(energy=self.energy),
            clocks=Clocks(sm=self.clock),
        )
        for name, before in self.histograms.items():
            waits = server.waits[name]
            samples = (*before.samples, (at, waits.cumulative))[-KEPT_SAMPLES:]
            self.histograms[name] = Histogram(bounds=waits.bounds, samples=samples)
        named = tuple((target, self.histograms[target.name]) for target in self.targets)
        tuned = with_samples(self.state, (gpu,), enforcing=True, slo=named)
        self.state = after_orders(tuned, target(tuned), at)

    @property
    def clock(self) -> float:
        return self.state.cap or TOP


def served(load: Load, hours: float, seed: int) -> Served:
    """One day of one load, with and without."""
    requests = arrivals(load, hours, seed)
    plain, capped, lookahead = (Server(requests, decode_only=load.decode_only) for _ in range(3))
    tuner = Tuner(load.slo)
    joules, least, held, breaks, caps = 0.0, 0.0, 0, 0, {}
    for second in range(1, int(3600 * hours)):
        joules += plain.second(float(second), TOP).joules
        known = 0.95 * TOP if lookahead.prefills(float(second)) else LOWEST
        least += lookahead.second(float(second), known).joules
        before = tuner.state.state
        tuner.take(float(second), capped.second(float(second), tuner.clock), capped)
        after = tuner.state.state
        breaks += after.lifted > before.lifted
        if after.phase is TrialPhase.HOLD and tuner.state.cap is not None:
            held += 1
            caps[tuner.state.cap] = caps.get(tuner.state.cap, 0) + 1
    return Served(
        load.what,
        len(requests),
        1 - tuner.energy / joules,
        1 - least / joules,
        tuple(plain.waits[name].quantile(share) for name, share in QUANTILES),
        tuple(capped.waits[name].quantile(share) for name, share in QUANTILES),
        held / (3600 * hours),
        " ".join(f"{cap / 1e6:.0f}" for cap in sorted(caps, key=lambda cap: -caps[cap])[:3]),
        breaks,
    )


HEAD = (
    "load",
    "requests",
    "saved",
    "lookahead",
    "p99 first token",
    "worse",
    "p99 per token",
    "worse",
    "p95 request",
    "worse",
)


def show(rows: Sequence[Served]) -> None:
    """Print the table."""
    title = "Serving by an SLO; asked: 20 % saved, p99 of first token and per token at most 5 % worse"
    table(title, (*HEAD, "held", "MHz", "lifted"), [cells(row) for row in rows])


def cells(row: Served) -> tuple[Any, ...]:
    """As the table shows it."""
    pairs = zip(row.plain, row.tuned, strict=True)
    waits = (text for a, b in pairs for text in (f"{1000 * a:.0f} ms", f"{100 * (b / a - 1):+.1f} %"))
    saved = (f"{100 * row.saved:.1f} %", f"{100 * row.most:.1f} %")
    return (row.load, row.requests, *saved, *waits, f"{100 * row.held:.0f} %", row.caps, row.breaks)


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.tuner.served", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--seed", type=int, default=2026)
    parser.add_argument("--load", help="only this one")
    chosen = parser.parse_args(arguments)
    show([served(load, chosen.hours, chosen.seed) for load in LOADS if chosen.load in (None, load.what)])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
