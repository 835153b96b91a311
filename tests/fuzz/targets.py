"""What is fuzzed: every reader of bytes that others write. A row is a function, what it may raise, and its corpus.

The corpus of a row is the folder of its name in `corpus/`: inputs that once were finds, and seeds.
"""

import asyncio
import contextlib
import random
import socket
import tempfile
import time
from collections.abc import Callable
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, cast

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from gpuwatch.agent.client import AgentClient
from gpuwatch.collect.kernel_log.lines import parse_line, read_frame, read_pasted
from gpuwatch.collect.kernel_log.records import parse_file
from gpuwatch.collect.kernel_log.ring import SyslogRing
from gpuwatch.config import parse
from gpuwatch.config.yaml import document
from gpuwatch.consents.progress import buckets, counted
from gpuwatch.http.connection import Connection
from gpuwatch.http.message import text
from gpuwatch.http.service import RequestCounts, ServerLimits, Service
from gpuwatch.http.web_config import load_web_config
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.model.view import View
from gpuwatch.rightsizing.prometheus.api import PrometheusApi
from gpuwatch.rightsizing.prometheus.http import Answer
from gpuwatch.sim.capture import open_capture
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.workloads.containers import named
from gpuwatch.workloads.grpc_call import GrpcError, answer
from gpuwatch.workloads.podresources import PodResources
from gpuwatch.workloads.podresources_proto import SCHEMA
from gpuwatch.workloads.wire import decode
from tests.fuzz.mutation import Reshape, reshaped
from tests.protobuf_classes import MESSAGES

CORPUS = Path(__file__).parent / "corpus"


class Target(NamedTuple):
    """One reader. `call` takes the bytes; `allowed` are the exceptions with which it may refuse them; `reshape` changes
    a value and leaves the form.
    """

    name: str
    call: Callable[[bytes], object]
    allowed: tuple[type[Exception], ...] = ()
    reshape: Reshape = reshaped

    def seeds(self) -> list[bytes]:
        """The kept corpus."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name).iterdir())]

    def run(self, data: bytes) -> None:
        """Raises what is a find."""
        with contextlib.suppress(*self.allowed):
            self.call(data)


@cache
def folder() -> Path:
    """For files; one process fuzzes one target at a time."""
    return Path(tempfile.mkdtemp(prefix="gpuwatch-fuzz-"))


def written(name: str, data: bytes) -> Path:
    path = folder() / name
    path.touch(mode=0o600)
    path.write_bytes(data)
    return path


def kernel_lines(data: bytes) -> None:
    parse_line(data)
    read_pasted(data.decode("utf-8", "replace"))
    list(parse_file(BytesIO(data)))


def klogctl(data: bytes) -> None:
    """Two looks at a ring of 4 KiB, the second with more in it."""
    reach = [len(data) // 2]
    ring = SyslogRing(lambda size: data[: reach[0]][-size:], 4096)
    for part in (len(data) // 2, len(data)):
        reach[0] = part
        for frame in ring.read():
            read_frame(frame)


def configuration(data: bytes) -> None:
    found = document(data, "FILE")
    parse(found.value, "FILE", found.at)


def capture(data: bytes) -> None:
    """A recording or a dump, and what a reader asks of it first."""
    library: Any = open_capture(str(written("capture", data)))
    try:
        library.nvmlInit()
        for index in range(min(int(library.nvmlDeviceGetCount()), 2)):
            library.nvmlDeviceGetUUID(library.nvmlDeviceGetHandleByIndex(index))
    except Exception as error:
        if type(error).__module__ != "pynvml":  # the driver's own errors
            raise


@cache
def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def http(data: bytes) -> None:
    """Everything a client sends on one connection before it closes its half."""
    tally, page = RequestCounts(), text(200, "page")

    async def serve() -> None:
        ours, client = socket.socketpair()
        with ours, client:
            ours.setblocking(False)
            client.sendall(data[:4096])
            client.shutdown(socket.SHUT_WR)
            routes = {"/metrics": lambda request: page, "/api/v1/view": lambda request: page}
            await Connection(ours, Service(routes=cast(Any, routes), limits=ServerLimits(), tally=tally)).run()

    _loop().run_until_complete(serve())
    assert not tally.handler_errors


def pod_resources(data: bytes) -> None:
    reply = decode(SCHEMA, "ListPodResourcesResponse", data)
    client = PodResources()
    for pod in reply.pod_resources:
        list(client._of_pod(pod))


def grpc(data: bytes) -> None:
    """All that a server sends before it closes."""
    ours, server = socket.socketpair()
    with ours, server:
        server.sendall(data[:4096])
        server.shutdown(socket.SHUT_WR)
        answer(ours, "/v1.Lister/List", until=time.monotonic() + 1, max_bytes=4096)


def _other_reply(data: bytes, chance: random.Random) -> bytes | None:
    kind = MESSAGES["ListPodResourcesResponse"]
    try:
        other = reshaped(json_format.MessageToJson(kind.FromString(data)).encode(), chance)
        return None if other is None else json_format.Parse(other, kind()).SerializeToString()
    except (DecodeError, json_format.Error, ValueError):
        return None


def actuation(data: bytes) -> None:
    """The record of a folder, with its seal, which is wrong, and as one that is only shown."""
    record = SettingsRecord(folder())
    record.path.parent.mkdir(mode=0o700, exist_ok=True)
    written("tuner/actuation.json", data)
    with contextlib.suppress(GpuwatchError):
        record.read()
    record.read_unsealed()


class _Prometheus:
    name = "prometheus"

    def __init__(self, body: bytes) -> None:
        self._body = body

    def ask(self, path: str, form: bytes | None) -> Answer:
        return Answer(200 if len(self._body) % 2 else 422, "", self._body)


def prometheus(data: bytes) -> None:
    api = PrometheusApi(cast(Any, _Prometheus(data)))
    for series in api.query("up", 1.0):
        series.now()
    api.names("up", 0.0, 1.0)


TARGETS = (
    Target("kernel-lines", kernel_lines),
    Target("klogctl", klogctl),
    Target("captures", capture, (UsageError,)),
    Target("configuration", configuration, (UsageError,)),
    Target("web-configuration", lambda data: load_web_config(written("web.yml", data)), (UsageError,)),
    Target("http", http),
    Target("pod-resources", pod_resources, (ValueError,), _other_reply),
    Target("grpc", grpc, (GrpcError, OSError)),
    Target("views", lambda data: AgentClient("/nowhere")._decode(data, View), (GpuwatchError,)),
    Target("actuation", actuation, (GpuwatchError,)),
    Target("prometheus", prometheus, (GpuwatchError,)),
    Target("containers", lambda data: named(data, "c3" * 32), UNREADABLE),
    Target("progress", lambda data: counted(data, ("x_total", "vllm:generation_tokens_total"))),
    Target("histograms", lambda data: buckets(data, "x_seconds")),
)
