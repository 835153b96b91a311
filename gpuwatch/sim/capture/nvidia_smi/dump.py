"""Finds the `nvidia-smi -q` blocks in a file, such as one attached to a support case, and reads one of them.

A file may hold several blocks and the output of other commands between them, under headings such as
`## load :: query (-q)` or none at all. The outputs of -L, nvlink -s and --version add facts.
"""

import bisect
import re
from typing import NamedTuple

from gpuwatch.model.errors import UsageError
from gpuwatch.sim.capture.data import Recording
from gpuwatch.sim.capture.nvidia_smi.answers import recording
from gpuwatch.sim.capture.nvidia_smi.parse import NO_HANDLE, BadXml, DumpNode, parse_text, parse_xml, read_other_outputs
from gpuwatch.sim.capture.nvidia_smi.processes import SECTIONS

_START = re.compile(
    r"(?P<text>^[ \t]*=+NVSMI LOG=+)"
    r"|(?P<xml>^[ \t]*(?:<\?xml\b[^>\n]{0,200}>\s{0,9})?(?:<!DOCTYPE[^>\[\n]{0,200}>\s{0,9})?<nvidia_smi_log\b)",
    re.MULTILINE,
)
"""A document type with declarations of its own (entities) is not nvidia-smi's; the block begins after it."""

_BARE_START = re.compile(r"^[ \t]*(?:Driver Version|Attached GPUs)[ \t]+: ", re.MULTILINE)
_HEADING = re.compile(r"^#+ +([^$#\s].*)$", re.MULTILINE)
_NEXT_OUTPUT = re.compile(r"^(?:#|\$ |\[?\w+@|timestamp, |\+---)", re.MULTILINE)
_XML_END = "</nvidia_smi_log>"


class Block(NamedTuple):
    """One -q output: the heading above it, and its text."""

    heading: str
    body: str


def is_dump(text: str) -> bool:
    """Whether a file holds an `nvidia-smi -q` dump, text or XML."""
    return bool(_starts(text))


def read_dump(text: str, choice: str, name: str) -> Recording:
    """The recording that a dump stands for. `choice` is a word of the heading, a number from 1, or empty for the first.

    Raises:
        UsageError: no such block, or nothing in it can be read.
    """
    block = _choose(blocks(text), choice, name)
    log = _parse(block, name)
    if not any(True for _ in log.named("gpu")):
        raise UsageError(f"no GPU in {name}", "the nvidia-smi dump lists none", "make it with: nvidia-smi -q > FILE")
    return recording(log, read_other_outputs(text), cut=_cut_gpu(log))


def missing_parts(text: str, choice: str, name: str) -> str:
    """What a dump lacks: GPUs that it counts, or the end of the last GPU. Empty for a complete one.

    Raises:
        UsageError: as `read_dump`.
    """
    log = _parse(_choose(blocks(text), choice, name), name)
    listed, counted = list(log.named("gpu")), next(log.named("attached_gpus"), DumpNode("")).value or ""
    if counted.isdecimal() and int(counted[:9]) > len(listed):
        return f"the dump counts {counted[:9]} GPUs and has {len(listed)}: it was cut, or made with -i"
    cut = _cut_gpu(log)
    return f"the dump ends within GPU {cut.value}: it was cut" if cut else ""


def _cut_gpu(log: DumpNode) -> DumpNode | None:
    """The last GPU, if it lacks the section with which the others end: in a complete dump (no `-d`) the processes."""
    gpus = [gpu for gpu in log.named("gpu") if gpu.find(NO_HANDLE) is None and gpu.children]
    last = {part.label for part in gpus[-1].children} if gpus else set()
    ends_early = any(gpu.children[-1].label not in last for gpu in gpus)
    return gpus[-1] if ends_early or ("product_name" in last and not last & set(SECTIONS)) else None


def blocks(text: str) -> list[Block]:
    """All -q outputs of a file in order."""
    starts = _starts(text)
    headings = [(match.start(), match[1].rstrip()) for match in _HEADING.finditer(text)]
    found = []
    for start, following in zip(starts, [*starts[1:], len(text)], strict=True):
        body = text[start:following]  # the output of other commands may follow the block
        if "<nvidia_smi_log" in body[:2000]:
            content, end, _ = body.partition(_XML_END)
            body = content + end
        elif other := _NEXT_OUTPUT.search(body, body.find("\n") + 1):
            body = body[: other.start()]
        before = bisect.bisect_left(headings, (start, "")) - 1
        found.append(Block(headings[before][1] if before >= 0 else "", body))
    return found


def _starts(text: str) -> list[int]:
    found = [match.start() for match in _START.finditer(text)]
    if not found and (bare := _BARE_START.search(text)):
        found = [bare.start()]
    return found


def _choose(found: list[Block], choice: str, name: str) -> Block:
    if not choice:
        return found[0]
    if choice.isdecimal() and 1 <= int(choice) <= len(found):
        return found[int(choice) - 1]
    for block in found:
        if choice.lower() in block.heading.lower():
            return block
    known = ", ".join(block.heading or str(number) for number, block in enumerate(found, 1))
    raise UsageError(f"no part {choice!r} in {name}", f"its nvidia-smi outputs are: {known}", "name one of these")


def _parse(block: Block, name: str) -> DumpNode:
    if "<nvidia_smi_log" not in block.body[:2000]:
        return parse_text(block.body)
    try:
        return parse_xml(block.body.lstrip())
    except BadXml as problem:
        raise UsageError(
            f"cannot read the XML in {name}", str(problem), "make it with: nvidia-smi -q -x > FILE"
        ) from None
