"""The simulated inference server of the evaluation: its page is read as any, and its own word decides on the cap."""

import math

import pytest

from gpuwatch.consents.progress import added, buckets, counted, slo_page
from gpuwatch.model.consent import ProgressCounter
from gpuwatch.model.slo import slo_targets
from tests.bench.tuner.served import LOADS, WIDE, served
from tests.bench.tuner.server import BOUNDS, TOKEN, TOP, TTFT, Load, Request, Server, arrivals

LOAD = Load("one", 5.0, 4.0, 3.0, WIDE)


@pytest.fixture(scope="module")
def server() -> Server:
    made = Server(arrivals(LOAD, 0.05, 3))
    for second in range(1, 181):
        made.second(float(second), TOP)
    return made


def test_its_page_has_what_it_counts(server: Server) -> None:
    page = server.page()
    for name, waits in server.waits.items():
        assert buckets(page, name) == dict(zip((*BOUNDS[name], math.inf), waits.cumulative, strict=True))
    assert counted(page, ("vllm:generation_tokens_total",)) == server.tokens > 0


def test_a_page_gives_counter_and_histograms_at_once(server: Server) -> None:
    targets = slo_targets(WIDE)
    page = slo_page("vllm", targets)
    found = added(ProgressCounter(), server.page(), page, targets, 1.0)
    assert (found.samples, set(found.histograms), found.trouble) == (((1.0, server.tokens),), {TTFT, TOKEN}, "")
    missing = added(found, b"vllm:generation_tokens_total 1\n", page, targets, 2.0)
    assert f"no histogram {TTFT}" in missing.trouble
    assert missing.histograms == found.histograms


def test_without_a_queue_the_first_token_comes_after_the_prompt_and_prefill_goes_with_the_clock() -> None:
    waits = []
    for clock in (TOP, TOP / 2):
        one = Server([Request(0.5, 2048, 10)])
        one.second(5.0, clock)
        waits.append(one.waits[TTFT].quantile(0.5))
    assert waits[0] == pytest.approx(0.069, abs=0.002)
    assert waits[1] / waits[0] == pytest.approx(2.0, abs=0.05)


def test_nothing_is_lost_between_queue_and_answer(server: Server) -> None:
    ended = server.waits["vllm:e2e_request_latency_seconds"].cumulative[-1]
    begun = server.waits[TTFT].cumulative[-1]
    assert begun - ended == server.running == len(server.ends)
    assert server.cached <= server.held


@pytest.mark.slow  # quick: tests/tuning/cycle/test_slo.py holds and lifts; this one is the figure
def test_decode_saves_a_fifth_and_nobody_waits_five_percent_longer() -> None:
    (load,) = (each for each in LOADS if each.decode_only)
    found = served(load, 2.0, 31)
    assert found.saved > 0.2
    for before, after in zip(found.plain[:2], found.tuned[:2], strict=True):
        assert after <= 1.05 * before
