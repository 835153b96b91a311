"""Prometheus' query API (also of Thanos, Mimir, VictoriaMetrics): expressions in, series out, distinct errors.

https://prometheus.io/docs/prometheus/latest/querying/api/
"""

import math
import re
from typing import TypeVar
from urllib.parse import urlencode

import msgspec

from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError, PermissionMissing
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.rightsizing.prometheus.http import Answer, AnswerTooLarge, PrometheusHttp

_TOO_LARGE = re.compile(
    rb"too many samples|maximum resolution|exceed|limit|too large|timed out|deadline|too many|too long", re.IGNORECASE
)

MOST_WARNINGS = 20
MOST_WORDS = 300


class TooLarge(GpuwatchError):
    """The server, or this client, refuses so much data at a time: ask for less."""

    def __init__(self, name: str, why: str) -> None:
        hint = "raise query.max-samples and query.timeout, or name a --namespace"
        super().__init__(f"Prometheus at {name} refused a query", why, hint)


class Series(msgspec.Struct, frozen=True):
    """Labels without the name where a function dropped it, and (unix seconds, number as text) in time order."""

    metric: dict[str, str]
    values: list[tuple[float, str]] = []
    value: tuple[float, str] | None = None  # of an instant query

    def now(self) -> float | None:
        """The number of an instant query; None where it is none."""
        return number(self.value[1]) if self.value else None


class _Data(msgspec.Struct):
    result: list[Series] = []


class _Envelope(msgspec.Struct, rename="camel"):
    status: str = ""
    data: _Data | None = None
    error: str = ""
    warnings: list[str] = []


class _Names(msgspec.Struct):
    data: list[str] | None = None
    warnings: list[str] = []


Body = TypeVar("Body", _Envelope, _Names)


def number(text: str) -> float | None:
    """A sample's value; None for NaN and infinities, which come of 0/0 and of staleness, and for what is no number."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


class PrometheusApi:
    """Queries over one connection. `warnings`: those of the server about incomplete answers, each once."""

    def __init__(self, http: PrometheusHttp) -> None:
        self.http = http
        self.warnings: dict[str, None] = {}

    def query(self, expression: str, at: float) -> list[Series]:
        """A vector at unix time `at`.

        Raises:
            GpuwatchError: the server cannot be reached, or cannot answer the query.
            PermissionMissing: it refuses the credentials.
            TooLarge: ask for less data.
        """
        return self._ask("/api/v1/query", query=expression, time=f"{at:.3f}")

    def query_range(self, expression: str, start: float, end: float, step: float) -> list[Series]:
        """A matrix at `start`, `start + step`, ... up to `end`. Raises as `query` does."""
        return self._ask(
            "/api/v1/query_range", query=expression, start=f"{start:.3f}", end=f"{end:.3f}", step=f"{step:.3f}"
        )

    def names(self, selector: str, start: float, end: float) -> set[str]:
        """Names of the metrics that exist between two moments. Raises as `query` does."""
        form = urlencode({"match[]": selector, "start": f"{start:.3f}", "end": f"{end:.3f}"})
        path = "/api/v1/label/__name__/values"
        return set(self._decoded(self._answer(f"{path}?{form}", None), path, _Names).data or ())

    def _ask(self, path: str, **arguments: str) -> list[Series]:
        # without it, Thanos may answer with a part of the data; other servers ignore the parameter
        form = urlencode({**arguments, "partial_response": "false"}).encode()
        found = self._decoded(self._answer(path, form), path, _Envelope)
        return found.data.result if found.data else []

    def _answer(self, path: str, form: bytes | None) -> Answer:
        try:
            return self.http.ask(path, form)
        except AnswerTooLarge:
            raise TooLarge(self.http.name, "its answer is too large to be held in memory") from None

    def _decoded(self, answer: Answer, path: str, form: type[Body]) -> Body:
        if answer.status != 200:
            raise self._refused(answer, path)
        try:
            found = msgspec.json.decode(answer.body, type=prepared(form))
        except UNREADABLE as error:
            raise GpuwatchError(
                f"cannot read the answer of {self.http.name}", str(error), "is it a Prometheus, with the right path?"
            ) from error
        for warning in found.warnings[:MOST_WARNINGS]:
            if len(self.warnings) < MOST_WARNINGS:
                self.warnings[_line(warning)] = None
        return found

    def _refused(self, answer: Answer, path: str) -> Exception:
        what = f"Prometheus at {self.http.name} refused a query"
        try:
            text = msgspec.json.decode(answer.body, type=prepared(_Envelope)).error
        except UNREADABLE:
            text = answer.body[:MOST_WORDS].decode("utf-8", "replace")
        message = _line(text) or _line(answer.reason)
        if answer.status in (401, 403, 407):
            return PermissionMissing(
                what, f"{answer.status}: {message}", "give --http-config FILE (basic_auth, authorization) or --header"
            )
        if answer.status == 404:
            return GpuwatchError(
                f"{self.http.name} has no {path}", message, "add the path prefix, such as /prometheus for Mimir"
            )
        if 300 <= answer.status < 400:
            where = _line(answer.location) or "elsewhere"
            return GpuwatchError(what, f"it redirects to {where}", "give that address, as credentials go nowhere else")
        if answer.status in (400, 413, 422, 500, 503, 504) and _TOO_LARGE.search(answer.body):
            return TooLarge(self.http.name, message)
        return GpuwatchError(what, f"{answer.status}: {message}", "see its log")


def _line(text: str) -> str:
    """One line of MOST_WORDS characters at most, in which none moves a terminal's cursor."""
    return " ".join("".join(each if each.isprintable() else " " for each in text[:MOST_WORDS]).split())
