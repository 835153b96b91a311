"""Other exporters of GPU metrics on this host: one page of each is read; an answer may be wrong, slow or huge."""

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor

from gpuwatch.model.snapshot import Record

PORTS = (9400, 9401, 9445, 9500, 9835)
"""dcgm-exporter and gpuwatch; a second one beside it; nvidia_gpu_prometheus_exporter; GKE; nvidia_gpu_exporter."""

MOST_BYTES = 8 << 20
"""The most of a page; 8 GPUs with every DCGM field and pod labels make about 1 MiB."""

_REQUEST = b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: text/plain\r\nUser-Agent: gpuwatch\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] (\d{3})(?: [^\r\n]*)?\r?\n")
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_SAMPLE = re.compile(rb"^([A-Za-z_:][\w:]*)(?:\{([^\n]*)\})? +\S", re.MULTILINE | re.ASCII)
_POD = re.compile(rb'(?:^|,)(?:pod|pod_name|exported_pod)="[^"]')


class Exporter(Record, frozen=True, kw_only=True):
    """The listener on `port`. `kind`: dcgm-exporter | gpuwatch | other; `status`: of HTTP; `families`: number of metric
    names; `profiling`: DCGM_FI_PROF_* are among them; `pods`: series name pods; `error`: why there was
    no whole page.
    """

    port: int
    kind: str = "other"
    status: int | None = None
    families: int = 0
    has_gpu_utilization: bool = False
    profiling: bool = False
    pods: bool = False
    error: str | None = None


def exporters(
    listening: tuple[int, ...] | None, timeout: float, ports: tuple[int, ...] = PORTS
) -> tuple[Exporter, ...]:
    """Read http://127.0.0.1:PORT/metrics of those `ports` that are among `listening` (None: not known), all at once,
    `timeout` seconds at most; a port without a listener is no error and gives no entry.
    """
    asked = [port for port in ports if listening is None or port in listening]
    if not asked:
        return ()
    deadline = time.monotonic() + timeout
    with ThreadPoolExecutor(max_workers=len(asked)) as pool:
        found = pool.map(lambda port: ask(port, deadline), asked)
        return tuple(exporter for exporter in found if exporter is not None)


def ask(port: int, deadline: float) -> Exporter | None:
    """One page of one exporter; None where no process listens. It is read whole or not at all."""
    answer = bytearray()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=max(0.001, deadline - time.monotonic())) as peer:
            peer.sendall(_REQUEST)
            while True:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                peer.settimeout(left)
                chunk = peer.recv(1 << 16)
                if not chunk:
                    return parse_answer(port, bytes(answer))
                answer += chunk
                if len(answer) > MOST_BYTES:
                    return Exporter(port=port, error=f"the page is larger than {MOST_BYTES >> 20} MiB")
    except ConnectionRefusedError:
        return None
    except TimeoutError:
        return Exporter(port=port, error="no whole page in time")
    except OSError as error:
        return Exporter(port=port, error=error.strerror or str(error))


def parse_answer(port: int, answer: bytes) -> Exporter:
    """An HTTP answer, head and body, as an exporter; anything else has an `error`."""
    status = _STATUS.match(answer)
    head = _END_OF_HEAD.search(answer)
    if status is None or head is None:
        return Exporter(port=port, error="no HTTP answer")
    code = int(status.group(1))
    if code != 200:
        return Exporter(port=port, status=code, error=f"HTTP status {code}")
    names: set[bytes] = set()
    pods = False
    for sample in _SAMPLE.finditer(answer, head.end()):
        names.add(sample.group(1))
        pods = pods or _POD.search(sample.group(2) or b"") is not None
    kind = "dcgm-exporter" if any(name.startswith(b"DCGM_FI_") for name in names) else "other"
    if any(name.startswith(b"gpuwatch_") for name in names):  # it also serves DCGM's names, when configured to
        kind = "gpuwatch"
    return Exporter(
        port=port,
        kind=kind,
        status=code,
        families=len(names),
        has_gpu_utilization=b"DCGM_FI_DEV_GPU_UTIL" in names,
        profiling=any(name.startswith(b"DCGM_FI_PROF_") for name in names),
        pods=pods,
    )
