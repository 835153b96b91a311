"""What other nvidia-smi commands add when their output lies in the same file: -L, nvlink -s, pmon, --version."""

import re
from typing import NamedTuple

GPU_LINE = re.compile(r"^GPU (\d+): (.*?) \(UUID: ([^)]*)\)\s*$")
MIG_LINE = re.compile(r"^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: ([^)]*)\)\s*$")
LINK_LINE = re.compile(r"^\s*Link (\d+): (?:(\d+(?:\.\d+)?) GB/s|<?inactive>?)\s*$", re.IGNORECASE)
NVML_LINE = re.compile(r"^NVML version\s*: (\S+)\s*$", re.IGNORECASE)
PMON_HEADER = re.compile(r"^#\s*gpu\s+pid\s+type\b")
MAX_LINKS = 72


class MigListing(NamedTuple):
    """A line of `nvidia-smi -L`: profile and uuid of a MIG device."""

    profile: str
    uuid: str


class OtherOutputs(NamedTuple):
    """`migs` by (gpu, MIG index); `links` by gpu: GB/s per link, None for an inactive one; `pmon` as printed."""

    migs: dict[tuple[int, int], MigListing]
    links: dict[int, dict[int, float | None]]
    pmon: str
    nvml: str | None


def read_extras(file: str, phase: str) -> OtherOutputs:
    """Facts of the whole file; pmon only from `phase`, the part of the file that belongs to the chosen -q block."""
    migs: dict[tuple[int, int], MigListing] = {}
    links: dict[int, dict[int, float | None]] = {}
    nvml, gpu = None, None
    for line in file.splitlines():
        if match := GPU_LINE.match(line):
            gpu = int(match[1])
        elif match := NVML_LINE.match(line):
            nvml = match[1]
        elif gpu is None:
            continue
        elif match := MIG_LINE.match(line):
            migs[gpu, int(match[2])] = MigListing(match[1], match[3])
        elif match := LINK_LINE.match(line):
            if int(match[1]) < MAX_LINKS:
                links.setdefault(gpu, {})[int(match[1])] = float(match[2]) if match[2] else None
        elif line[:1] not in (" ", "\t"):
            gpu = None
    return OtherOutputs(migs, links, _pmon(phase), nvml)


def _pmon(phase: str) -> str:
    """The pmon table: its header and the rows below it."""
    kept: list[str] = []
    for line in phase.splitlines():
        if PMON_HEADER.match(line) or (kept and re.match(r"^\s+\d+\s+(\d+|-)\s+\S+\s", line)):
            kept.append(line)
        elif kept and not line.startswith("#"):
            break
    return "\n".join(kept)
