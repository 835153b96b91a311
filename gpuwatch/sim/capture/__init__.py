"""Captures: record a driver's answers, and use a recording or an nvidia-smi dump in place of the driver."""

import logging
import time
from collections.abc import Callable
from pathlib import Path

from gpuwatch import __version__
from gpuwatch.collect.nvml.events import DriverEventReader
from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.collect.nvml.library import Failure, Nvml, NvmlFailure, ask, text
from gpuwatch.model.clock import rfc3339
from gpuwatch.model.errors import NoGpuStack, UsageError
from gpuwatch.sim.capture.data import Header, Recording, is_capture, load, mask, new_capture, read_file
from gpuwatch.sim.capture.nvidia_smi.dump import is_dump, missing_parts, read_dump
from gpuwatch.sim.capture.record import Recorder
from gpuwatch.sim.capture.replay import Replay

log = logging.getLogger(__name__)

SYSTEM = ("nvmlSystemGetDriverVersion", "nvmlSystemGetNVMLVersion", "nvmlSystemGetCudaDriverVersion_v2")
LOOP = "loop"


def open_capture(target: str) -> Replay:
    """A pynvml-shaped module over a file: `FILE`, or `FILE#PART`.

    The file is a recording of `gpuwatch capture`, or unchanged output of `nvidia-smi -q`, text or XML. PART chooses one
    of several dumps in a file by heading (`load`) or number; for a recording `loop` repeats it after the end.

    Raises:
        UsageError: the file has another form, is broken or lacks the part.
    """
    path, part = _parts(target)
    data = read_file(path)
    if is_capture(data):
        if part not in ("", LOOP):
            raise UsageError(f"no part {part!r} in {path}", "it is a recording", f"leave it out or say #{LOOP}")
        return Replay(load(data, path), loop=part == LOOP)
    dump = decoded(data)
    if is_dump(dump):
        return Replay(read_dump(dump, part, str(path)))
    raise UsageError(
        f"{path} is no capture",
        "it is neither a recording nor nvidia-smi -q output",
        "record one with: gpuwatch capture FILE, or: nvidia-smi -q > FILE",
    )


def missing(target: str) -> str:
    """The parts that a dump at `target` lacks, because its file was cut; empty for a complete one.

    Raises:
        UsageError: the file cannot be read.
    """
    path, part = _parts(target)
    data = read_file(path)
    dump = "" if is_capture(data) else decoded(data)
    return missing_parts(dump, part, str(path)) if is_dump(dump) else ""


def _parts(target: str) -> tuple[Path, str]:
    whole = Path(target)
    name, hash_sign, part = target.rpartition("#")
    return (Path(name), part) if hash_sign and not whole.exists() else (whole, "")


def decoded(data: bytes) -> str:
    """Text of a dump; PowerShell writes UTF-16, terminals colour codes and CRLF."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        content = data.decode("utf-16", errors="replace")
    else:
        content = data.decode("utf-8-sig", errors="replace")
    return content.replace("\r\n", "\n").replace("\r", "\n")


def record(
    nvml: Nvml,
    samples: int,
    interval: float,
    path: Path,
    *,
    masked: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Recording:
    """Read every GPU `samples` times, `interval` seconds apart, and write all questions and answers to `path`.

    The real readers ask, so the file holds exactly the calls that gpuwatch makes. `masked` replaces serials and UUIDs.

    Raises:
        NoGpuStack: the driver does not start.
        UsageError: the file cannot be written.
    """
    with new_capture(path) as save:  # opened first, so that a wrong path does not cost hours of samples
        recording = Recording()
        recorder = Recorder(nvml, recording)
        try:
            ask(recorder, "nvmlInit")
            readers = _readers(recorder)
        except NvmlFailure as error:
            raise NoGpuStack("cannot record", f"NVML: {error}", "check the driver with nvidia-smi") from None
        taken = _sample(recorder, readers, _events(recorder, readers), samples, interval, sleep)
        recording.header = Header(
            gpuwatch=__version__,
            at=rfc3339(time.time()),
            driver=_text(nvml, SYSTEM[0]),
            models=[reader.identity.name or "" for reader in readers],
            samples=taken,
            interval=interval,
            masked=masked,
            fields_by_name=getattr(nvml, "fields_by_name", False),
        )
        if masked:
            recording = mask(recording)
        save(recording)
    return recording


def _readers(nvml: Nvml) -> list[GpuReader]:
    for name in SYSTEM:
        _text(nvml, name)
    readers = []
    for index in range(int(ask(nvml, "nvmlDeviceGetCount"))):
        try:
            readers.append(GpuReader(nvml, *register(nvml, index)))
        except NvmlFailure as error:
            log.warning("GPU %d cannot be registered: %s", index, error)
    return readers


def _events(nvml: Nvml, readers: list[GpuReader]) -> DriverEventReader | None:
    try:
        events = DriverEventReader(nvml)
        for reader in readers:
            handle = ask(nvml, "nvmlDeviceGetHandleByIndex", reader.identity.index)
            events.add(handle, reader.identity)
    except NvmlFailure as error:
        log.info("no driver events: %s", error)
        return None
    return events


def _sample(
    nvml: Recorder,
    readers: list[GpuReader],
    events: DriverEventReader | None,
    samples: int,
    interval: float,
    sleep: Callable[[float], None],
) -> int:
    """Number of samples taken: fewer when the driver is gone or the bound on the file's size is reached."""
    for number in range(samples):
        for reader in readers:
            try:
                reader.read(time.time(), time.monotonic())
            except NvmlFailure as error:
                log.warning("GPU %d: %s", reader.identity.index, error)
                if error.kind is Failure.DRIVER_GONE:
                    return number + 1
        if nvml.recording.full:
            log.warning("the capture is full after %d samples", number + 1)
            return number + 1
        if number + 1 < samples:
            end = time.monotonic() + interval  # driver events until then go into the file
            while events and (left := end - time.monotonic()) > 0:
                try:
                    events.wait(max(1, round(left * 1e3)), time.time)
                except NvmlFailure:
                    break
            sleep(max(0.0, end - time.monotonic()))
    return samples


def _text(nvml: Nvml, name: str) -> str | None:
    try:
        return text(ask(nvml, name))
    except NvmlFailure:
        return None
