"""The counters of work done that pods name by `gpuwatch.io/progress`, and the histograms that they name by
`gpuwatch.io/slo`, fetched from their own Prometheus pages.

The process that keeps consents fetches them: it has network and the addresses of pods, and no access to GPUs. The pod
controls its page. So a page comes from the pod's own address only, in bounded bytes and time, no redirect is followed,
and all that is taken from it are one number and the buckets of three histograms.

The tuner compares the counter's rate in windows of a few seconds, so each page is fetched once a second. Each pod has a
thread: one that does not answer delays no other.
"""

import http.client
import ipaddress
import logging
import math
import re
import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.consents.progress_socket import SILENT_SECONDS, Added, ProgressSocket
from gpuwatch.http.client import TimedResponse
from gpuwatch.model.clock import Clock
from gpuwatch.model.consent import PROGRESS, SLO, SOCKET, Consents, Histogram, Progress, ProgressCounter
from gpuwatch.model.decoding import prepared
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.slo import Target, slo_targets
from gpuwatch.model.snapshot import Record
from gpuwatch.storage.versioned_file import VersionedFile

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
CONNECT_SECONDS, ANSWER_SECONDS = 0.3, 0.7
"""For the connection, and for the whole answer: both together are one poll."""

MOST_BYTES = 1 << 20
"""Of a page, and all pages may come at once; those of inference servers have 50 to 300 KB."""

KEPT_SAMPLES = 20
MOST_PODS = 32
"""A node has 16 GPUs at most; where more pods than this name a page, only the first are read."""

URL = re.compile(r"http://:([0-9]{1,5})(/[A-Za-z0-9._~/-]*)#([A-Za-z_:][A-Za-z0-9_:]*)")
PRESET = re.compile(r"([a-z][a-z0-9-]*)(?::([0-9]{1,5}))?")


class Preset(Record, frozen=True, kw_only=True):
    """One row of `progress_presets.json`. `metrics`: their samples are added up; `source`: where they are described."""

    name: str
    port: int
    path: str
    metrics: tuple[str, ...]
    source: str


class ProgressPage(NamedTuple):
    """A page of a pod, and the metrics on it that count its work."""

    port: int
    path: str
    metrics: tuple[str, ...]


class NamedPage(NamedTuple):
    """Where a pod's page is: its own address (None: it has none); its values of PROGRESS and SLO (empty: none)."""

    address: str | None
    progress: str
    slo: str


@cache
def presets() -> dict[str, Preset]:
    """By name."""
    body = Path(__file__).with_name("progress_presets.json").read_bytes()
    return {preset.name: preset for preset in msgspec.json.decode(body, type=prepared(list[Preset]))}


def progress_page(text: str) -> ProgressPage:
    """`vllm`, `vllm:8001` or `http://:8000/metrics#tokens_total`: an address is never part of it.

    Raises GpuwatchError: the value of the annotation is none of them.
    """
    found: ProgressPage | None = None
    if url := URL.fullmatch(text.strip()):
        found = ProgressPage(int(url[1]), url[2], (url[3],))
    elif (named := PRESET.fullmatch(text.strip())) and (preset := presets().get(named[1])):
        found = ProgressPage(int(named[2] or preset.port), preset.path, preset.metrics)
    if found is None or not 0 < found.port < 1 << 16:
        known = ", ".join((*presets(), SOCKET))
        raise GpuwatchError(f"{PROGRESS} is {text!r}", f"neither one of {known}, nor http://:PORT/PATH#METRIC")
    return found


def slo_page(text: str, targets: tuple[Target, ...]) -> ProgressPage:
    """Where the histograms of `targets` are: on the page that PROGRESS names by `text`, else on that of the preset
    whose metrics have the same prefix, such as `vllm:`.

    Raises GpuwatchError: neither names a page.
    """
    if text:
        return progress_page(text)
    begin = re.split("[:_]", targets[0].name)[0]
    found = next((each for each in presets().values() if re.split("[:_]", each.metrics[0])[0] == begin), None)
    if found is None:
        raise GpuwatchError(
            f"{SLO} names {targets[0].name}", "no preset has such metrics", f"say where its page is by {PROGRESS}"
        )
    return ProgressPage(found.port, found.path, ())


def counted(body: bytes, metrics: tuple[str, ...]) -> float | None:
    """The sum of all samples of these metrics on a page; None: there is no sample, or one is no count."""
    names = "|".join(map(re.escape, metrics)).encode()
    labels = rb'(?:\{(?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+\})?+'  # possessive: backtracking costs memory
    pattern = rb"^(?:%s)%s[ \t]+([^ \t\r\n]{1,32})(?=[ \t\r\n]|\Z)" % (names, labels)
    try:
        values = [float(each) for each in re.findall(pattern, body, re.MULTILINE)]
    except ValueError:
        return None
    total = sum(values)
    return total if values and min(values) >= 0 and math.isfinite(total) else None


MOST_BUCKETS = 64
"""Different `le`; vLLM's longest histogram has 22."""

MOST_SERIES = 4096
"""Samples of one histogram: engines times models times buckets."""

LARGEST_COUNT = 2.0**53
"""Above this a float does not count by one."""

LABELS = rb'\{((?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+)\}'  # possessive: backtracking costs memory
MOST_LABELS = 4096
"""Bytes of one sample's labels."""

BOUND = re.compile(rb'(?<![A-Za-z0-9_])le *+= *+"((?:[^"\\]++|\\.)*+)"|"(?:[^"\\]++|\\.)*+"')
"""The value of a label `le`, or another value, passed over so that no `le` in it counts. No byte is read twice."""


def buckets(body: bytes, name: str) -> dict[float, float] | None:
    """Upper bound in seconds -> count of all that were at most that long, added up over all series of a histogram on a
    pod's page; the last bound is infinite.

    None: the page has no such histogram, or an impossible one: the pod controls its page, so at most MOST_BUCKETS
    bounds are taken, and only counts that are finite, not negative, and not falling from bucket to bucket.
    """
    pattern = rb"^%s_bucket%s[ \t]+([^ \t\r\n]{1,32})(?=[ \t\r\n]|\Z)" % (re.escape(name).encode(), LABELS)
    found: defaultdict[float, list[float]] = defaultdict(list)
    for number, sample in enumerate(re.finditer(pattern, body, re.MULTILINE)):
        if len(sample[1]) > MOST_LABELS:
            return None
        bounds = [each[1] for each in BOUND.finditer(sample[1]) if each[1] is not None]
        try:
            (bound,), count = map(float, bounds), float(sample[2])
        except ValueError:
            return None
        found[bound].append(count)
        if number >= MOST_SERIES or len(found) > MOST_BUCKETS or math.isnan(bound) or not 0 <= count <= LARGEST_COUNT:
            return None
    totals = {bound: sum(counts) for bound, counts in sorted(found.items())}
    same = len({len(counts) for counts in found.values()}) == 1  # a series with other bounds cannot be added
    if not same or math.inf not in totals or -math.inf in totals or list(totals.values()) != sorted(totals.values()):
        return None
    return totals


def fetch(address: str, page: ProgressPage, *, loopback: bool = False) -> bytes:
    """The page as it is now. `address`: an IP address; `loopback`: it may be this machine's, for a simulated pod.

    Raises GpuwatchError: it cannot be fetched.
    """
    what = f"{NOTHING} at port {page.port}, {page.path}"
    try:
        own = ipaddress.ip_address(address)
    except ValueError as error:
        raise GpuwatchError(what, str(error)) from None
    own = getattr(own, "ipv4_mapped", None) or own
    if own.is_link_local or own.is_multicast or own.is_unspecified or (own.is_loopback and not loopback):
        raise GpuwatchError(what, f"{own} is no pod's own address")
    connection = http.client.HTTPConnection(str(own), page.port, timeout=CONNECT_SECONDS)
    connection.response_class = TimedResponse
    try:
        connection.connect()
        connection.sock.settimeout(ANSWER_SECONDS)
        connection.request("GET", page.path, headers={"Accept": "text/plain", "User-Agent": "gpuwatch"})
        response = connection.getresponse()
        body = response.read(MOST_BYTES + 1)
        if response.length and len(body) <= MOST_BYTES:
            raise http.client.IncompleteRead(b"", response.length)  # http.client reports no error for it
    except (OSError, http.client.HTTPException) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else type(error).__name__
        raise GpuwatchError(what, why) from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise GpuwatchError(what, f"it answers {response.status}")
    if len(body) > MOST_BYTES:
        raise GpuwatchError(what, f"the page has more than {MOST_BYTES} bytes")
    return body


class ProgressFollower:
    """Reads `consents`, asks the pods in it that name a page, and writes `file`, with what is added at `socket`. `step`
    polls once; `run` polls each second until it is stopped.
    """

    def __init__(
        self,
        consents: ConsentsFile,
        file: VersionedFile[Progress],
        clock: Clock,
        *,
        socket: ProgressSocket | None = None,
        loopback: bool = False,
    ) -> None:
        self._consents, self._file, self._clock, self._loopback = consents, file, clock, loopback
        self._socket = socket
        self._known: dict[str, ProgressCounter] = {}
        self._trouble: str | None = None

    def run(self, stopping: threading.Event) -> None:
        """Poll each second until `stopping` is set."""
        while not stopping.wait(POLL_SECONDS - self._clock.monotonic() % POLL_SECONDS):
            try:
                self.step()
            except Exception:  # a page that triggers a bug must not end the consents
                log.exception("counters of progress were not read")

    def step(self) -> None:
        """Poll all of them once, together."""
        try:
            consents = self._consents.read()
            named = {} if consents is None or consents.is_old(self._clock.time()) else pages(consents)
            found: dict[str, Added] = {}
            if self._socket is not None:
                self._socket.pods = frozenset(uid for uid, each in named.items() if each.progress == SOCKET)
                found = self._socket.added()
            if named or found or self._known:
                outside = {owner: self._sampled(owner, each) for owner, each in found.items() if owner not in named}
                with ThreadPoolExecutor(max_workers=len(named) or 1) as pool:
                    counters = pool.map(lambda uid: self._poll(uid, named[uid], found.get(uid)), named)
                    self._known = dict(zip(named, counters, strict=True)) | outside
                self._file.write(Progress(at=self._clock.time(), owners=self._known))
            trouble = None
        except GpuwatchError as error:
            trouble = str(error)
        if trouble and trouble != self._trouble:
            log.warning("%s", trouble)
        self._trouble = trouble

    def _sampled(self, owner: str, added: Added | None) -> ProgressCounter:
        """With the total that was added, as of its newest line; where that is more than a second old, as of a second
        ago.
        """
        known = self._known.get(owner, ProgressCounter())
        if added is None:
            why = f"nothing was added at tuning.progress_socket for {SILENT_SECONDS:.0f} s"
            return replace(known, trouble=f"{NOTHING}; {why}")
        at = max(added.at, self._clock.time() - POLL_SECONDS)
        if known.samples and at <= known.samples[-1][0]:
            return replace(known, trouble="")
        return replace(known, samples=(*known.samples, (at, added.total))[-KEPT_SAMPLES:], trouble="")

    def _poll(self, uid: str, named: NamedPage, added_here: Added | None) -> ProgressCounter:
        known, text = self._known.get(uid, ProgressCounter()), named.progress
        if text == SOCKET:
            known, text = self._sampled(uid, added_here), ""
            if not named.slo:
                return known
        try:
            targets = slo_targets(named.slo) if named.slo else ()
            page = slo_page(text, targets) if targets else progress_page(text)
            if named.address is None:
                raise GpuwatchError(NOTHING, "the pod has no address of its own (hostNetwork, or not yet)")
            asked = self._clock.time()
            body = fetch(named.address, page, loopback=self._loopback)
        except GpuwatchError as error:
            return replace(known, trouble=str(error))
        return added(known, body, page, targets, (asked + self._clock.time()) / 2)


NOTHING = "no counter"


def added(
    known: ProgressCounter, body: bytes, page: ProgressPage, targets: tuple[Target, ...], at: float
) -> ProgressCounter:
    """`known` with the values of a page that was read at `at`, unix seconds."""
    what, troubles, samples, histograms = f"{NOTHING} at port {page.port}, {page.path}", [], known.samples, {}
    if page.metrics and (value := counted(body, page.metrics)) is not None:
        samples = (*samples, (at, value))[-KEPT_SAMPLES:]
    elif page.metrics:
        troubles.append(f"{what}; the page has no {' or '.join(page.metrics)} that counts")
    for name in dict.fromkeys(target.name for target in targets):
        before = known.histograms.get(name, Histogram())
        if (found := buckets(body, name)) is None:
            troubles.append(f"{what}; the page has no histogram {name}, or not one that can be")
            histograms[name] = before
            continue
        bounds, counts = tuple(found)[:-1], tuple(found.values())
        kept = before.samples if before.bounds == bounds else ()
        histograms[name] = Histogram(bounds=bounds, samples=(*kept, (at, counts))[-KEPT_SAMPLES:])
    return ProgressCounter(samples=samples, histograms=histograms, trouble="; ".join(troubles))


def pages(consents: Consents) -> dict[str, NamedPage]:
    """By uid, of the pods that name a counter or an SLO, or whose namespace names one."""
    found = {}
    for pod in consents.pods:
        places = (pod.annotations, consents.namespaces.get(pod.namespace, {}))
        progress, slo = (next((text for each in places if (text := each.get(key))), "") for key in (PROGRESS, SLO))
        if progress or slo:
            found[pod.uid] = NamedPage(pod.ip, progress.strip(), slo)
    return dict(list(found.items())[:MOST_PODS])
