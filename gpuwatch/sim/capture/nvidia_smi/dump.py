"""Finds the `nvidia-smi -q` blocks in a file, as people attach it to a support case, and reads one of them.

A file may hold several blocks and the output of other commands between them, under headings such as
`## load :: query (-q)` or none at all. Of the other commands, -L, nvlink -s, pmon and --version add facts.
"""

import re
from typing import NamedTuple

from gpuwatch.model.errors import UsageError
from gpuwatch.sim.capture.data import Recording
from gpuwatch.sim.capture.nvidia_smi.answers import recording
from gpuwatch.sim.capture.nvidia_smi.parse import BadXml, DumpNode, parse_text, parse_xml, read_other_outputs

_START = re.compile(
    r"(?P<text>^[ \t]*=+NVSMI LOG=+)|(?P<xml>^[ \t]*(?:<\?xml\b[^>]*>\s*)?(?:<!DOCTYPE[^>\[]*>\s*)?<nvidia_smi_log\b)",
    re.MULTILINE,
)
"""A document type with declarations of its own (entities) is not nvidia-smi's; the block begins after it."""

_BARE_START = re.compile(r"^[ \t]*(?:Driver Version|Attached GPUs)[ \t]+: ", re.MULTILINE)
_HEADING = re.compile(r"^#+ +([^$#\s].*?)\s*$", re.MULTILINE)
_NEXT_OUTPUT = re.compile(r"^(?:#|\$ |\[?\w+@|timestamp, |\+---)", re.MULTILINE)
_XML_END = "</nvidia_smi_log>"


class Block(NamedTuple):
    """One -q output: the heading above it, its text, and everything up to the next block."""

    heading: str
    body: str
    phase: str


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
    return recording(log, read_other_outputs(text, block.phase))


def blocks(text: str) -> list[Block]:
    """All -q outputs of a file in order."""
    starts = _starts(text)
    found = []
    for start, following in zip(starts, [*starts[1:], len(text)], strict=True):
        headings = [match[1] for match in _HEADING.finditer(text, 0, start)]
        phase = text[start:following]
        found.append(Block(headings[-1] if headings else "", _body(phase), phase))
    return found


def _starts(text: str) -> list[int]:
    found = [match.start() for match in _START.finditer(text)]
    if not found and (bare := _BARE_START.search(text)):
        found = [bare.start()]
    return found


def _body(phase: str) -> str:
    """The block without what other commands printed after it."""
    if "<nvidia_smi_log" in phase[:2000]:
        end = phase.find(_XML_END)
        return phase[: end + len(_XML_END)] if end >= 0 else phase
    first_line = phase.find("\n") + 1
    following = _NEXT_OUTPUT.search(phase, first_line)
    return phase[: following.start()] if following else phase


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
