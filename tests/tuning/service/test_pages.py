"""The tuner's page for people: what is done with each GPU and for whom, and first what keeps it from being done."""

from msgspec.structs import replace

from gpuwatch.http.server import HttpStats, Request
from gpuwatch.tuning.model.status import TunerState
from gpuwatch.tuning.service.metrics import PAGES
from tests.cli.tune.tuner_states import CHAT, TRAIN, enforcing, troubled

STATS = HttpStats(requests={}, rejected={}, handler_errors=0, open_connections=0, reload_failures=0)


def page(state: TunerState) -> str:
    found = PAGES.routes(lambda: state, lambda: STATS)["/"](Request(method="GET", path="/", query={}, headers={}))
    assert found.status == 200
    return found.body.decode()


def test_each_gpu_says_what_is_done_for_whom_and_what_it_costs():
    text = page(enforcing())
    for message in (
        f"holding; used by {TRAIN}; clock at most 1410 MHz; loses 3.1% of its speed, at most 4.6%; allowed 5.0%",
        "about 12.1 Wh saved",
        f"searching; used by {CHAT}",
        "1800 W; limits 1795 W; draw 1042 W; roomy",
        "running",
    ):
        assert message in text


def test_what_keeps_it_from_working_is_reported():
    text = page(troubled())
    for message in ("stopped by ada", "gpuwatch tune resume", "no heartbeat", "Permission denied", "is not known"):
        assert message in text


def test_what_a_person_wrote_is_no_markup():
    assert "<b>" not in page(replace(troubled(), stopped="stopped by <b>"))


def test_a_cache_keeps_the_forms_of_the_metrics_apart():
    metrics = PAGES.routes(enforcing, lambda: STATS)["/metrics"]
    requests = [
        Request(method="GET", path="/metrics", query={}, headers={"accept": accept})
        for accept in ("text/plain", "application/openmetrics-text")
    ]
    answers = [metrics(request) for request in requests]
    assert answers[0].body != answers[1].body
    assert all(("Vary", "Accept") in each.headers for each in answers)
