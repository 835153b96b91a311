"""What a page reports about its process and the scrape: made up, since nothing runs, and always the same."""

from collections.abc import Iterator
from typing import NamedTuple

from msgspec.structs import replace

from gpuwatch.http.server import HttpStats
from gpuwatch.metrics.metric import Family, Type
from gpuwatch.metrics.process import SELF_METRICS, SelfState
from gpuwatch.model.snapshot import Snapshot, SourceStatus
from gpuwatch.sim.node import noise
from gpuwatch.storage.store import StoreStats

MIB = 1 << 20


class Appetite(NamedTuple):
    """What a process of this kind uses: CPUs, bytes of memory, open files."""

    cpus: float
    memory: float
    files: int


AGENT = Appetite(cpus=0.014, memory=61 * MIB, files=24)
REMEDIATOR = Appetite(cpus=0.003, memory=58 * MIB, files=14)
TUNER = Appetite(cpus=0.002, memory=44 * MIB, files=12)

DURATIONS = {"nvml": 0.031, "gpm": None, "kmsg": None, "podresources": 0.0007, "procfs": 0.0021, "pci": 0.0009}
"""Sources that an agent has, and about how long each takes; None where nothing is timed."""


class Self:
    """One process. `name` distinguishes it from all others."""

    def __init__(self, name: str, appetite: Appetite, started: float) -> None:
        self._stream, self._appetite = noise.key("telemetry", name), appetite
        self._cpu, self._scrapes = 0.4, 0
        self._started = self._last = started

    def restarted(self, at: float) -> None:
        """Another process from now on."""
        self._cpu, self._scrapes = 0.4, 0
        self._started = self._last = at

    def families(self, at: float, *, store: bool) -> list[Family]:
        """Its page's rows about itself, as of unix time `at`."""
        self._cpu += (at - self._last) * self._appetite.cpus * self._about(at)
        self._last, self._scrapes = at, self._scrapes + 1
        http = HttpStats(
            requests={200: self._scrapes, 404: 0},
            rejected={"connections": 0, "scrapes": 0},
            handler_errors=0,
            open_connections=1,
            reload_failures=0,
        )
        state = SelfState(http, StoreStats(up=True, lost=0, set_aside=0) if store else None, 0)
        return [*(row.family(state) for row in SELF_METRICS), *self._process(at)]

    def scrape(self, at: float, samples: int) -> list[Family]:
        """What Prometheus notes of a scrape; of one that failed `samples` is 0."""
        took = (0.002 + samples * 2.5e-6) * self._about(at, 7) if samples else 0.001
        rows = {
            "up": float(samples > 0),
            "scrape_duration_seconds": round(took, 6),
            "scrape_samples_scraped": samples,
            "scrape_samples_post_metric_relabeling": samples,
            "scrape_series_added": 0,
        }
        return [_family(name, "gauge", value) for name, value in rows.items()]

    def _process(self, at: float) -> Iterator[Family]:
        memory = self._appetite.memory * (0.98 + 0.02 * self._about(at, 3))
        yield _family("process_cpu_seconds_total", "counter", round(self._cpu, 2))
        yield _family("process_resident_memory_bytes", "gauge", round(memory))
        yield _family("process_virtual_memory_bytes", "gauge", round(6 * memory))
        yield _family("process_start_time_seconds", "gauge", self._started)
        yield _family("process_open_fds", "gauge", self._appetite.files)
        yield _family("process_max_fds", "gauge", 1 << 20)

    def _about(self, at: float, salt: int = 1) -> float:
        """A number around 1."""
        return 0.8 + 0.4 * noise.uniform(self._stream ^ salt, int(at))


class Sources:
    """How the sources of one agent are doing; the playback itself knows of the driver only."""

    def __init__(self, name: str) -> None:
        self._stream = noise.key("sources", name)
        self._known = {source: SourceStatus(name=source, up=True) for source in DURATIONS}

    def see(self, snapshot: Snapshot) -> Snapshot:
        """The same snapshot with all of them."""
        nvml = snapshot.sources[0]
        has_gpm = any(gpu.activity.sm is not None for gpu in snapshot.gpus)
        for number, (name, usual) in enumerate(DURATIONS.items()):
            before = self._known[name]
            up = nvml.up if name == "nvml" else (has_gpm or None) if name == "gpm" else True
            took = (
                None if usual is None else usual * (0.8 + 0.4 * noise.uniform(self._stream + number, int(snapshot.at)))
            )
            self._known[name] = replace(
                before,
                up=up,
                reason=nvml.reason if name == "nvml" else "",
                duration_seconds=took if up else before.duration_seconds,
                last_success=snapshot.at if up else before.last_success,
                failures=before.failures + (up is False),
            )
        return replace(snapshot, sources=tuple(self._known.values()))


def _family(name: str, kind: Type, value: float) -> Family:
    return Family(name, kind, "", (), [(("", ()), value)])
