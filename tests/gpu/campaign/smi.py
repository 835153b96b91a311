"""gpuwatch's reading of `nvidia-smi -q`, text and XML, beside its reading of the driver just before and after it."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.collect.nvml.library import ask
from gpuwatch.model.snapshot import Gpu
from gpuwatch.sim.capture import open_capture
from tests.gpu.campaign.reads import open_driver
from tests.gpu.campaign.report import Findings, Status

FORMS = {"nvidia-smi-q.txt": ("-q",), "nvidia-smi-q.xml": ("-q", "-x")}
NOT_COMPARED = ("at", "read_seconds", "unsupported", "errors", "activity", "identity.index", "processes", "vgpus")
NOT_PRINTED = (
    "utilization.gpu_",
    "power.mean",
    "power.max",
    "power.energy",
    "clock_events.seconds",
    "pcie.transmit",
    "pcie.receive",
)
"""Paths that nvidia-smi -q cannot have: means over driver samples, and counters of which it prints rates."""

MIB = 1 << 20
TOLERANCES: tuple[tuple[str, float], ...] = (
    ("memory.", 4 * MIB),
    ("bar1.", 2 * MIB),
    ("power.average", 15.0),
    ("power.instant", 25.0),
    ("temperature.", 2.0),
    ("utilization.", 0.15),
    ("clocks.", 30e6),
    ("fans.", 0.05),
    ("nvlinks.", 1e9),
)
"""How far a value may lie outside of what the driver said before and after, by the start of its path: what nvidia-smi
rounds to, and what changes within a second. All others must be equal."""

SMI_SECONDS = 15


def nvidia_smi(work: Path, findings: Findings) -> None:
    """Every GPU, field by field, in both forms."""
    program = shutil.which("nvidia-smi")
    if program is None:
        findings.add("nvidia-smi", "on PATH", "absent", "unknown", "nothing to compare with")
        return
    readers = open_driver()
    for name, arguments in FORMS.items():
        before = {reader.identity.uuid: _read(reader) for reader in readers}
        done = subprocess.run([program, *arguments], capture_output=True, timeout=SMI_SECONDS, check=False)
        after = {reader.identity.uuid: _read(reader) for reader in readers}
        (work / name).write_bytes(done.stdout)
        (work / "captures" / name).write_bytes(masked(done.stdout, before))
        if done.returncode:
            findings.add(name, "exit status 0", done.returncode, "unknown", done.stderr.decode(errors="replace")[:200])
            continue
        dumped = dump_readings(work / name)
        findings.add(
            f"{name}: GPUs", sorted(before), sorted(dumped), "pass" if before.keys() == dumped.keys() else "differs"
        )
        for uuid in before.keys() & dumped.keys():
            prefix = f"{name}: GPU {before[uuid].identity.index}: "
            compare(findings, prefix, flat(dumped[uuid]), flat(before[uuid]), flat(after[uuid]))


def _read(reader: GpuReader) -> Gpu:
    return reader.read(time.time(), time.monotonic(), force=True)


def masked(dump: bytes, gpus: Mapping[str, Gpu]) -> bytes:
    """Without UUIDs and serial numbers, in the form in which captures can be published."""
    for number, gpu in enumerate(gpus.values()):
        dump = dump.replace(gpu.identity.uuid.encode(), f"GPU-{number:08x}-0000-0000-0000-000000000000".encode())
        if gpu.identity.serial:
            dump = dump.replace(gpu.identity.serial.encode(), b"0" * len(gpu.identity.serial))
    return dump


def dump_readings(path: Path) -> dict[str, Gpu]:
    """What gpuwatch's own reader of dumps makes of each GPU in the file."""
    nvml = open_capture(str(path))
    ask(nvml, "nvmlInit")
    readers = [GpuReader(nvml, *register(nvml, index)) for index in range(int(ask(nvml, "nvmlDeviceGetCount")))]
    return {reader.identity.uuid: _read(reader) for reader in readers}


def flat(gpu: Gpu) -> dict[str, Any]:
    """Path -> value of everything that is compared and known."""
    return dict(_leaves("", msgspec.to_builtins(gpu)))


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if path in NOT_COMPARED:
        return
    if isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(f"{path}.{name}" if path else name, item)
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _leaves(f"{path}.{number}", item)
    elif value is not None:
        yield path, value


def compare(
    findings: Findings, prefix: str, dump: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    """A line for each path of the dump, and one for all that only the driver says."""
    for path, measured in sorted(dump.items()):
        expected = [side[path] for side in (before, after) if path in side]
        status: Status = "differs" if not expected or not agrees(path, measured, expected) else "pass"
        note = "" if expected else "nvidia-smi prints it, gpuwatch does not get it from the driver"
        findings.add(
            prefix + path, expected[0] if expected and expected[0] == expected[-1] else expected, measured, status, note
        )
    only = sorted(path for path in before.keys() - dump.keys() if not path.startswith(NOT_PRINTED))
    findings.add(f"{prefix}only from the driver", "", len(only), "unknown" if only else "pass", ", ".join(only))


def agrees(path: str, measured: Any, expected: list[Any]) -> bool:
    """Whether a value of a dump is one of the driver's, or lies between them within the path's tolerance."""
    if measured in expected:
        return True
    if isinstance(measured, bool | str) or not all(isinstance(value, int | float) for value in expected):
        return False
    within = next((bound for start, bound in TOLERANCES if path.startswith(start)), abs(float(measured)) * 1e-6)
    return min(expected) - within <= measured <= max(expected) + within
