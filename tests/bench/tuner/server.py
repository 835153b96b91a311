"""A simulated inference server on one GPU: queue, chunked prefill, continuous batching, and vLLM's page of metrics.

Sizes: Llama 3.1 8B in BF16 (16 GB of weights, 128 KiB of KV cache a token: 32 layers, 8 KV heads of 128) on an H100 SXM
(3.35 TB/s, 989 TFLOP/s dense, NVIDIA's data sheet). A step takes what memory or compute needs, whichever is longer, at
75 % of the bandwidth and 50 % of the operations, and 2 ms of the host's. Prompts and answers are lognormal with the
medians of Azure's conversation trace of 2023, 1,020 and 129 tokens (Splitwise, ISCA 2024).

Clock: compute goes with it; the memory's share gets 1 % slower from 1980 to 780 MHz, and draws 90 W less (decode on
H200, arXiv 2605.11999: 47 to 90 W, at most 32 % of the energy, less than 1 % of the speed). Prefill draws 650 W.
"""

import heapq
import math
import random
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import NamedTuple

TOP = 1980e6
WEIGHTS, KV_TOKEN = 16.06e9, 131072.0
BANDWIDTH, OPERATIONS = 0.75 * 3.35e12, 0.5 * 989e12
OPERATIONS_TOKEN = 2 * 8.03e9
HOST_SECONDS = 0.002
CHUNK, MOST_RUNNING = 2048, 256
"""vLLM's max_num_batched_tokens and max_num_seqs."""

KV_TOKENS = int(48e9 / KV_TOKEN)

STATIC_WATTS, IDLE_WATTS, MEMORY_WATTS, DECODE_WATTS, PREFILL_WATTS = 110.0, 15.0, 70.0, 100.0, 470.0
"""Always; with the clock: while idle; with memory traffic; with the clock: of decode and of prefill."""

SLOWER = 0.01 / (TOP / 780e6 - 1)

TTFT = "vllm:time_to_first_token_seconds"
TOKEN = "vllm:inter_token_latency_seconds"
REQUEST = "vllm:e2e_request_latency_seconds"
LONG = (1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
BOUNDS = {
    TTFT: (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, *LONG, 160.0, 640.0, 2560.0),
    TOKEN: (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, *LONG),
    REQUEST: (
        0.3,
        0.5,
        0.8,
        1.0,
        1.5,
        2.0,
        2.5,
        5.0,
        *(10.0 * n for n in (1, 1.5, 2, 3, 4, 5, 6, 12, 24, 48, 96, 192, 768)),
    ),
}
"""As in vllm/v1/metrics/loggers.py."""


class Request(NamedTuple):
    """`at`: seconds when it came."""

    at: float
    prompt: int
    answer: int


class Second(NamedTuple):
    """What the driver tells of one second: shares of it, and joules."""

    engine: float
    dram: float
    tensor: float
    joules: float


class Waits:
    """Seconds waited, exactly for the account, and in buckets for the page."""

    def __init__(self, name: str) -> None:
        self.name, self.bounds = name, BOUNDS[name]
        self.counts = [0] * (len(self.bounds) + 1)
        self.all: defaultdict[float, int] = defaultdict(int)

    def add(self, seconds: float, times: int = 1) -> None:
        place = 0
        while place < len(self.bounds) and seconds > self.bounds[place]:
            place += 1
        self.counts[place] += times
        self.all[round(seconds, 4)] += times

    @property
    def cumulative(self) -> tuple[float, ...]:
        """As Prometheus has them; the last is that of all."""
        total, found = 0, []
        for count in self.counts:
            total += count
            found.append(float(total))
        return tuple(found)

    def quantile(self, share: float) -> float:
        """To a tenth of a millisecond."""
        left = share * sum(self.all.values())
        for seconds, times in sorted(self.all.items()):
            left -= times
            if left <= 0:
                return seconds
        return math.nan


class Server:
    """It works through `requests`, second by second, at whatever clock it is given. `decode_only`: other nodes do the
    prefill, as in disaggregated serving; the KV cache comes with the request.
    """

    def __init__(self, requests: Sequence[Request], *, decode_only: bool = False) -> None:
        self.decode_only = decode_only
        self.coming, self.waiting = deque(requests), deque[list[float]]()
        self.now, self.steps, self.running, self.held, self.cached = 0.0, 0, 0, 0, 0
        self.prefilling: list[float] | None = None
        self.begun: list[list[float]] = []
        self.ends: list[tuple[int, float, int]] = []  # step, when it came, KV cache
        self.waits = {name: Waits(name) for name in BOUNDS}
        self.tokens = 0

    def second(self, until: float, clock: float) -> Second:
        """Work until then."""
        began, busy, moved, computed, joules = self.now, 0.0, 0.0, 0.0, 0.0
        power = (clock / TOP) ** 2.4
        while self.now < until:
            self._arrive()
            prompt = self._prefill(CHUNK - self.running)
            if not prompt and not self.running and not self.begun:
                pause = min(until, self.coming[0].at if self.coming else until) - self.now
                joules += pause * (STATIC_WATTS + IDLE_WATTS * power)
                self.now += pause
                continue
            memory = (WEIGHTS + self.cached * KV_TOKEN) / BANDWIDTH * (1 + SLOWER * (TOP / clock - 1))
            compute = (prompt + self.running) * OPERATIONS_TOKEN / (OPERATIONS * clock / TOP)
            seconds = HOST_SECONDS + max(memory, compute)
            share = min(1.0, compute / seconds)
            watts = STATIC_WATTS + MEMORY_WATTS * memory / max(memory, compute)
            watts += (DECODE_WATTS + (PREFILL_WATTS - DECODE_WATTS) * share) * power
            self.now += seconds
            busy, moved, computed = busy + seconds, moved + min(memory, seconds), computed + share * seconds
            joules += watts * seconds
            self._produce(seconds)
        length = self.now - began
        return Second(busy / length, 0.75 * moved / length, 0.5 * computed / length, joules) if length > 0 else IDLE

    def prefills(self, until: float) -> bool:
        """Whether it works on a prompt before then."""
        coming = bool(self.coming) and self.coming[0].at < until
        return not self.decode_only and (coming or bool(self.waiting) or self.prefilling is not None)

    def _arrive(self) -> None:
        while self.coming and self.coming[0].at <= self.now:
            request = self.coming.popleft()
            self.waiting.append([request.at, request.prompt, request.prompt, request.answer])

    def _prefill(self, room: int) -> int:
        """Tokens of prompts in this step; `begun`: those that end with it have their first token after it."""
        used, self.begun = 0, []
        while room > used:
            if self.prefilling is None:
                if not self.waiting or self.running + len(self.begun) >= MOST_RUNNING:
                    break
                if self.held + self.waiting[0][2] + self.waiting[0][3] > KV_TOKENS:
                    break
                self.prefilling = self.waiting.popleft()
                self.held += int(self.prefilling[2] + self.prefilling[3])
            part = int(self.prefilling[1]) if self.decode_only else min(room - used, int(self.prefilling[1]))
            self.prefilling[1] -= part
            used += 0 if self.decode_only else part
            if not self.prefilling[1]:
                self.begun.append(self.prefilling)
                self.prefilling = None
        return used

    def _produce(self, seconds: float) -> None:
        """One token for each that runs."""
        self.steps += 1
        if self.running:
            self.waits[TOKEN].add(seconds, self.running)
            self.tokens += self.running
            self.cached += self.running
        while self.ends and self.ends[0][0] <= self.steps:
            _, at, cached = heapq.heappop(self.ends)
            self.waits[REQUEST].add(self.now - at)
            self.running, self.cached, self.held = self.running - 1, self.cached - cached, self.held - cached
        for at, _, prompt, answer in self.begun:
            self.waits[TTFT].add(self.now - at)
            self.tokens += 1
            self.running, self.cached = self.running + 1, self.cached + int(prompt)
            heapq.heappush(self.ends, (self.steps + int(answer), at, int(prompt + answer)))

    def page(self) -> bytes:
        """As vLLM answers `/metrics`, for what is read of it."""
        labels = 'engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"'
        lines = [f"vllm:generation_tokens_total{{{labels}}} {float(self.tokens)}"]
        for name, waits in self.waits.items():
            ends = (*map(str, waits.bounds), "+Inf")
            lines += [
                f'{name}_bucket{{{labels},le="{end}"}} {count}'
                for end, count in zip(ends, waits.cumulative, strict=True)
            ]
        return "\n".join(lines).encode() + b"\n"


IDLE = Second(0.0, 0.0, 0.0, 0.0)


class Load(NamedTuple):
    """Requests in a second at the busiest hour; `bursts` an hour, and how many `times` more come in one. `slo`: as its
    operator has it.
    """

    what: str
    rate: float
    bursts: float
    times: float
    slo: str
    decode_only: bool = False


def arrivals(load: Load, hours: float, seed: int) -> list[Request]:
    """A day's wave down to a third at night, bursts of 20 to 90 s, gaps whose standard deviation is twice their mean
    (gamma, as BurstGPT found of real ones).
    """
    chance = random.Random(seed)
    found, now, ends, begins = [], 0.0, -1.0, chance.expovariate(load.bursts / 3600)
    while now < 3600 * hours:
        if now >= begins:
            ends, begins = now + chance.uniform(20, 90), now + 90 + chance.expovariate(load.bursts / 3600)
        rate = load.rate * (2 / 3 - math.cos(2 * math.pi * now / 86400) / 3) * (load.times if now < ends else 1)
        now += chance.gammavariate(0.25, 4 / rate)
        prompt, answer = chance.lognormvariate(math.log(1020), 0.8), chance.lognormvariate(math.log(129), 0.9)
        found.append(Request(now, min(8192, 1 + int(prompt)), min(2048, 1 + int(answer))))
    return found
