"""The client against servers that are busy, that refuse, that lie about who they are: on a real socket."""

import gzip
import http.server
import json
import re
import threading
import time
import urllib.parse
from itertools import count
from typing import NamedTuple

import pytest

from gpuwatch.model.errors import GpuwatchError, PermissionMissing, UsageError
from gpuwatch.rightsizing.prometheus import http as prometheus_http
from gpuwatch.rightsizing.prometheus.api import MOST_WARNINGS, PrometheusApi, TooLarge
from gpuwatch.rightsizing.prometheus.config import HttpConfig, basic
from gpuwatch.rightsizing.prometheus.http import ATTEMPTS, FIRST_PAUSE, LONGEST_PAUSE, REQUEST_SECONDS, PrometheusHttp


class Reply(NamedTuple):
    status: int = 200
    body: bytes = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
    headers: tuple[tuple[str, str], ...] = ()
    cut: bool = False  # promise more than comes, and hang up
    hang: bool = False  # say nothing until the client has left


OK = Reply()


def refused(status, kind, words, *headers):
    return Reply(status, json.dumps({"status": "error", "errorType": kind, "error": words}).encode(), headers)


class Server:
    """Gives its replies in turn, the last one for ever; remembers what was asked."""

    def __init__(self, *replies):
        self.replies, self.asked = list(replies), []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                outer.asked.append((self.path, dict(self.headers), dict(urllib.parse.parse_qsl(body.decode()))))
                reply = outer.replies.pop(0) if len(outer.replies) > 1 else outer.replies[0]
                if reply.hang:
                    self.connection.recv(1)
                self.send_response(reply.status)
                for name, value in reply.headers:
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(reply.body) + reply.cut))
                self.end_headers()
                self.wfile.write(reply.body)
                self.close_connection = reply.cut

            do_GET = do_POST

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def serve():
    """Makes (server, API, pauses); pauses are counted, not slept."""
    made = []

    def start(*replies, path="", config=None, headers=None, rate=0.0, clock=lambda: 0.0):
        server, pauses = Server(*replies), []
        client = PrometheusHttp(
            server.url + path, config, headers=headers, rate=rate, sleep=pauses.append, monotonic=clock, timeout=10
        )
        made.append((server, client))
        return server, PrometheusApi(client), pauses

    yield start
    for server, client in made:
        client.close()
        server.server.shutdown()
        server.server.server_close()


def test_a_busy_server_is_asked_again_after_as_long_as_it_says(serve):
    busy = refused(429, "", "too many", ("Retry-After", "7"))
    server, api, pauses = serve(busy, Reply(502), OK)
    assert api.query("up", 1) == []
    assert pauses == [7, 2 * FIRST_PAUSE]
    assert len(server.asked) == 3


def test_retries_have_an_end_and_no_pause_is_longer_than_the_longest(serve):
    server, api, pauses = serve(refused(429, "", "busy", ("Retry-After", "100000")))
    with pytest.raises(GpuwatchError, match="429"):
        api.query("up", 1)
    assert len(server.asked) == ATTEMPTS
    assert max(pauses) == LONGEST_PAUSE


@pytest.mark.parametrize("reply", [refused(429, "", "busy"), Reply(cut=True)])
def test_all_attempts_together_stay_within_one_deadline(serve, reply):
    """A server that takes its time for each of them, as one that drips does: here two hundred seconds."""
    times = count(0, 100)
    server, api, _ = serve(OK, reply, clock=lambda: next(times))
    api.query("up", 1)  # of a server that has answered more is borne
    begun = next(times)
    with pytest.raises(GpuwatchError):
        api.query("up", 1)
    assert 1 < len(server.asked) - 1 < ATTEMPTS
    assert next(times) - begun <= REQUEST_SECONDS + 300


def test_the_last_attempt_has_what_is_left_of_the_time(serve):
    """It ends by the deadline, though a single one might take longer."""
    times = iter([0, 0, 0, 0, 0, REQUEST_SECONDS - 0.2])
    _, api, _ = serve(OK, Reply(hang=True), clock=lambda: next(times, REQUEST_SECONDS))
    api.query("up", 1)
    since = time.monotonic()
    with pytest.raises(GpuwatchError, match="timed out"):
        api.query("up", 1)
    assert time.monotonic() - since < 10


@pytest.mark.parametrize(("said", "pause"), [("-7", 0), ("nan", 0), ("Wed, 21 Oct", FIRST_PAUSE)])
def test_a_pause_that_cannot_be_made_is_none(serve, said, pause):
    _, api, pauses = serve(refused(429, "", "busy", ("Retry-After", said)), OK)
    api.query("up", 1)
    assert pauses == [pause]


def test_a_connection_that_breaks_is_opened_again(serve):
    server, api, _ = serve(OK, Reply(cut=True), OK)
    api.query("up", 1)
    assert api.query("up", 1) == []
    assert api.http.traffic.repeated == 1
    assert len(server.asked) == 3


@pytest.mark.parametrize(
    "reply",
    [
        refused(422, "execution", "query processing would load too many samples into memory in query execution"),
        refused(400, "bad_data", "exceeded maximum resolution of 11,000 points per timeseries"),
        refused(503, "timeout", "query timed out in expression evaluation"),
        refused(422, "execution", "the query exceeded the maximum number of chunks (limit: 2000000 chunks)"),
    ],
)
def test_a_question_that_is_too_large_is_not_asked_again(serve, reply):
    server, api, _ = serve(reply)
    with pytest.raises(TooLarge, match="max-samples"):
        api.query("up", 1)
    assert len(server.asked) == 1


def test_an_answer_that_memory_would_not_hold_is_too_large(serve):
    bomb = gzip.compress(b"0" * (prometheus_http.MAX_BODY + 1))
    _, api, _ = serve(Reply(200, bomb, (("Content-Encoding", "gzip"),)))
    with pytest.raises(TooLarge, match="memory"):
        api.query("up", 1)
    assert api.http.traffic.received < len(bomb) + 1


@pytest.mark.parametrize(
    ("reply", "error", "words"),
    [
        (Reply(401, b"Unauthorized\n"), PermissionMissing, "401: Unauthorized.*--http-config"),
        (Reply(403, b"no"), PermissionMissing, "--header"),
        (Reply(404, b"404 page not found"), GpuwatchError, "path prefix"),
        (Reply(302, b"", (("Location", "https://login.example/"),)), GpuwatchError, "redirects to https://login"),
        (Reply(200, b"<html>"), GpuwatchError, "is it a Prometheus"),
        (Reply(200, b'{"data":{"result":[{"metric":{"pod":"\xff"}}]}}'), GpuwatchError, "is it a Prometheus"),
        (Reply(200, b'{"x":' + b"[" * 200_000), GpuwatchError, "is it a Prometheus"),
        (Reply(302, b"", (("Location", "\x1b[2J"),)), GpuwatchError, r"redirects to \[2J"),
        (refused(400, "bad_data", "\x1b]0;title\a parse error"), GpuwatchError, "400: ]0;title parse error"),
        (refused(400, "bad_data", "parse error: unexpected character"), GpuwatchError, "parse error"),
    ],
)
def test_what_cannot_be_helped_is_reported_in_the_servers_words(serve, reply, error, words):
    _, api, _ = serve(reply)
    with pytest.raises(error, match=words):
        api.query("up", 1)


def test_what_a_server_left_out_is_remembered_and_not_wanted_in_the_first_place(serve):
    body = b'{"status":"success","data":{"result":[]},"warnings":["store-3 is down"]}'
    server, api, _ = serve(Reply(200, body))
    api.query("up", 1)
    api.query("up", 2)
    assert list(api.warnings) == ["store-3 is down"]
    assert server.asked[0][2]["partial_response"] == "false"


def test_a_path_prefix_a_tenant_and_a_login_go_with_every_question(serve):
    config = HttpConfig(bearer_token="t0ken")
    server, api, _ = serve(OK, path="/prometheus/", config=config, headers={"X-Scope-OrgID": "blue"})
    api.query_range("up", 0, 600, 300)
    path, headers, form = server.asked[0]
    assert path == "/prometheus/api/v1/query_range"
    assert (headers["Authorization"], headers["X-Scope-OrgID"]) == ("Bearer t0ken", "blue")
    assert (form["start"], form["end"], form["step"]) == ("0.000", "600.000", "300.000")


def test_questions_keep_their_distance(serve):
    _, api, pauses = serve(OK, rate=4)
    for _ in range(3):
        api.query("up", 1)
    assert pauses == pytest.approx([0.25, 0.5])


def test_a_password_in_the_url_works_and_is_never_shown(serve, caplog):
    server, _, _ = serve(OK)
    client = PrometheusHttp(server.url.replace("http://", "http://ann:s%40cret@"))
    PrometheusApi(client).query("up", 1)
    client.close()
    assert server.asked[0][1]["Authorization"] == "Basic YW5uOnNAY3JldA=="
    assert "cret" not in client.name
    assert "unencrypted" in caplog.text


@pytest.mark.parametrize("value", ["s\necret", "s\u20accret"])
def test_what_cannot_be_a_header_is_named_and_its_value_not_shown(serve, value):
    server, api, _ = serve(OK, config=HttpConfig(bearer_token=value))
    with pytest.raises(UsageError, match=r"'Authorization'.*--http-config") as caught:
        api.query("up", 1)
    assert "cret" not in str(caught.value)
    assert not server.asked


def test_names_that_memory_would_not_hold_are_too_many(serve):
    bomb = gzip.compress(b"0" * (prometheus_http.MAX_BODY + 1))
    _, api, _ = serve(Reply(200, bomb, (("Content-Encoding", "gzip"),)))
    with pytest.raises(TooLarge, match="memory"):
        api.names("up", 1, 2)


def test_a_sample_that_is_no_number_is_unknown_and_warnings_have_an_end(serve):
    series = b'"data":{"result":[{"metric":{},"value":[1,"many"]}]}'
    warnings = json.dumps([f"store-{number} is down" for number in range(10_000)]).encode()
    _, api, _ = serve(Reply(200, b'{"status":"success","warnings":' + warnings + b"," + series + b"}"))
    assert [row.now() for row in api.query("up", 1)] == [None]
    assert len(api.warnings) == MOST_WARNINGS


def test_a_proxy_gets_its_own_login_and_the_whole_address(serve):
    server, _, _ = serve(OK)
    proxy = HttpConfig(proxy_url=server.url.replace("http://", "http://ann:hush@"))
    client = PrometheusHttp("http://prometheus.example:9090/prefix", proxy)
    PrometheusApi(client).query("up", 1)
    client.close()
    path, headers, _ = server.asked[0]
    assert path == "http://prometheus.example:9090/prefix/api/v1/query"
    assert (headers["Host"], headers["Proxy-Authorization"]) == ("prometheus.example:9090", basic("ann", "hush"))
    assert "Authorization" not in headers


NO_ADDRESSES = ("prometheus:9090", "ftp://x", "http://", "http://x:port", "http://x/?a=b", "http://[::1", "http://a..b")


@pytest.mark.parametrize("url", [*NO_ADDRESSES, "http://x/a b", "http://" + "x" * 70, "http://x/\u00fc"])
def test_what_is_no_address_is_reported_at_once(url):
    with pytest.raises(UsageError, match="is no Prometheus"):
        PrometheusHttp(url)


@pytest.mark.parametrize("url", ["http://ann:hush@x:99999", "http://ann:hu/sh@x", "ann:hush@x", "http://ann:hush@[::1"])
def test_a_password_in_what_is_no_address_is_not_shown(url):
    with pytest.raises(UsageError, match="is no Prometheus") as caught:
        PrometheusHttp(url)
    assert not re.search("hu|sh", str(caught.value))


@pytest.mark.parametrize("proxy", ["socks5://ann:hush@x", "https://ann:hush@x", "proxy:3128"])
def test_a_proxy_that_it_cannot_speak_to_is_reported(proxy):
    client = PrometheusHttp("http://prometheus.example", HttpConfig(proxy_url=proxy))
    with pytest.raises(UsageError, match="cannot use proxy_url") as caught:
        PrometheusApi(client).query("up", 1)
    assert "hush" not in str(caught.value)


def test_nobody_there_is_reported_with_the_address():
    pauses = []
    client = PrometheusHttp("http://127.0.0.1:1", sleep=pauses.append)
    with pytest.raises(GpuwatchError, match=r"cannot reach Prometheus at http://127\.0\.0\.1:1; Connection refused"):
        PrometheusApi(client).query("up", 1)
    assert sum(pauses) < 2, "who mistypes a port does not wait for half a minute"
