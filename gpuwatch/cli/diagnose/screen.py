"""The screen of `diagnose`: the verdict, the failure to begin with, then the other failures and their remedies."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby

from gpuwatch.cli.console.terminal import ASCII
from gpuwatch.cli.console.text import Text
from gpuwatch.cli.console.words import Words, wrap
from gpuwatch.cli.diagnose.document import verdict
from gpuwatch.cli.look.status import NODE_LINE, head_line, node_parts
from gpuwatch.diagnose.check import spans
from gpuwatch.diagnose.facts import HOST_SECTIONS, NodeFacts
from gpuwatch.diagnose.model import CheckResult, CheckStage, CheckStatus, Diagnosis

MARKS = {CheckStatus.PASS: "✓+", CheckStatus.WARN: "!!", CheckStatus.FAIL: "✗x", CheckStatus.SKIP: "·-"}
"""In Unicode and in ASCII."""

STYLES = {CheckStatus.PASS: "green", CheckStatus.WARN: "yellow", CheckStatus.FAIL: "bold red", CheckStatus.SKIP: "dim"}
COUNTED = {
    CheckStatus.FAIL: ("failed", "failed"),
    CheckStatus.WARN: ("warning", "warnings"),
    CheckStatus.PASS: ("passed", "passed"),
    CheckStatus.SKIP: ("skipped", "skipped"),
}
"""Singular and plural, in the order in which the line of a stage shows them."""

STAGE_WIDTH, INDENT, LEAST_WIDTH = 12, 7, 40
EVIDENCE = 8
"""Lines of evidence on a screen; all of them with -o wide."""

AS_ROOT = "run as root to see it"
OF_A_GPU = re.compile(r"gpu (\d+)")
COMMAND_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")
SENTENCE = re.compile(r"(?<=\.) (?=[A-Z])")
LEAST_REFERRED = 60
"""Characters that a reference to an earlier remedy must save."""

SECTIONS: dict[str, str] = {
    "bus": "the PCI bus",
    "kernel": "the kernel and its modules",
    "kernel_log": "the kernel log",
    "nodes": "device files in /dev",
    "driver_roots": "the driver's libraries and programs",
    "limits": "limits of processes and shared memory",
    "operator": "the GPU operator's files",
    "services": "running services",
    "runtime": "the container runtime's configuration",
    "cdi": "CDI specifications",
    "kubelet": "the kubelet's files and socket",
    "record": "gpuwatch's record of its settings",
    "tuner": "the tuner's heartbeat",
    "view": "the GPUs (NVML)",
    "earlier": "the GPUs, an earlier sample",
    "cluster": "the Kubernetes API",
    "exporters": "other exporters",
    "active": "work on the GPUs",
    "agent": "the agent of this node",
}
"""Section -> its name on the screen; documents keep the names of the sections."""


class Screen:
    """Draws one diagnosis into `width` columns; with `wide` every check, all evidence, and each remedy in full."""

    def __init__(self, words: Words, width: int, *, wide: bool = False) -> None:
        self._words, self._width, self._wide = words, max(width, LEAST_WIDTH), wide
        self._shown_remedies: dict[str, str] = {}  # sentence -> the check that showed it first

    def lines(self, diagnosis: Diagnosis, facts: NodeFacts) -> list[Text]:
        """All of it, from the top, in blocks."""
        parts = node_parts(facts.view, self._words.glyphs) if facts.view else []
        head = head_line(diagnosis.node, parts, verdict(diagnosis), self._words, min(self._width, NODE_LINE))
        first = diagnosis.first
        wrong = [result for result in diagnosis.results if result.result in (CheckStatus.FAIL, CheckStatus.WARN)]
        blocks = [[head], list(self._failure(first)) if first else []]
        blocks.append([line for stage in CheckStage for line in self._stage(stage, diagnosis)])
        blocks += [list(self._failure(result)) for result in wrong if result is not first]
        if self._wide:
            titled = [(r, f"{r.title}: {r.message}" if r.message else r.title) for r in diagnosis.results]
            blocks.append([line for r, text in titled for line in self._wrapped(self._head(r), text)])
        elif all(result.result is CheckStatus.SKIP for result in diagnosis.results):
            reasons: dict[str, list[str]] = {}
            for result in diagnosis.results:
                reasons.setdefault(result.message, []).append(result.id)
            unjudged = _plain("not judged: ", "yellow")
            texts = [f"{', '.join(ids)}: {reason}" for reason, ids in reasons.items()]
            blocks.append([line for text in texts for line in self._wrapped(unjudged, text)])
        blocks.append(list(self._unread(facts)))
        return [line for block in blocks if block for line in (_plain(), *block)][1:]

    def _stage(self, stage: CheckStage, diagnosis: Diagnosis) -> Iterator[Text]:
        """`driver      ✗ 1 failed, 6 passed, 2 blocked by D01`; nothing for a stage that was not asked for."""
        results = [result for result in diagnosis.results if result.stage is stage]
        counts = Counter(result.result for result in results if result.blocked_by is None)
        blocked = Counter(result.blocked_by for result in results if result.blocked_by is not None)
        parts = [f"{counts[result]} {name[counts[result] != 1]}" for result, name in COUNTED.items() if counts[result]]
        parts += [f"{count} blocked by {id_}" for id_, count in blocked.items()]
        worst = next((result for result in COUNTED if counts[result]), CheckStatus.SKIP)
        mark = (self._mark(worst), STYLES[worst])
        if results:
            yield from self._wrapped(Text.assemble(f"{stage.value:<{STAGE_WIDTH}}", mark, " "), ", ".join(parts))

    def _failure(self, result: CheckResult) -> Iterator[Text]:
        """The message of a failure or warning, its evidence, its remedy."""
        blank = " " * INDENT
        yield from self._wrapped(self._head(result), result.message or result.title, STYLES[result.result])
        lines = (f"{name}: {value}" for name, value in folded_evidence(result.evidence).items())
        evidence = [line for line in lines if line.casefold() != result.message.casefold()]
        shown = evidence if self._wide or len(evidence) <= EVIDENCE else evidence[: EVIDENCE - 1]
        for line in shown:
            yield from self._wrapped(_plain(blank), line, "dim")
        if len(shown) < len(evidence):
            yield _plain(f"{blank}and {len(evidence) - len(shown)} more: -o wide", "dim")
        remedy = result.remedy if self._wide else self.short_remedy(result)
        if remedy:
            yield from self._wrapped(_plain(f"{blank}{self._words.glyphs.arrow} "), remedy)
        for command in result.commands:
            commands = [""]  # as it can be copied, also where it takes several lines
            for word in COMMAND_WORD.findall(command):
                if commands[-1] and INDENT + 2 + len(commands[-1]) + len(word) + 3 > self._width:
                    commands[-1] += " \\"
                    commands.append("  " + word)
                else:
                    commands[-1] += f" {word}" if commands[-1] else word
            yield from (Text.assemble(f"{blank}  ", (line, "bold")) for line in commands)

    def short_remedy(self, result: CheckResult) -> str:
        """The remedy of a check; consecutive sentences that an earlier check showed are cut to the first:
        `Drain the node, then reset the GPU, as for G05.`
        """
        sentences = SENTENCE.split(result.remedy)
        short: list[str] = []
        for earlier, run in groupby(sentences, self._shown_remedies.get):
            first, *rest = run
            if earlier is not None and len(" ".join(rest)) >= LEAST_REFERRED:
                short.append(f"{first.removesuffix('.')}, as for {earlier}.")
            else:
                short += [first, *rest]
        self._shown_remedies = dict.fromkeys(sentences, result.id) | self._shown_remedies
        return " ".join(short)

    def _head(self, result: CheckResult) -> Text:
        style = STYLES[result.result]
        return Text.assemble((self._mark(result.result), style), f" {result.id:<{INDENT - 2}}")

    def _unread(self, facts: NodeFacts) -> Iterator[Text]:
        """Sections that could not be read, together where the reason is the same."""
        reasons: dict[tuple[str, bool], list[str]] = {}
        for section, reason in facts.unread.items():
            reasons.setdefault((reason, section in facts.denied), []).append(section)
        for (reason, denied), sections in reasons.items():
            advice = f"; {AS_ROOT}" if denied and os.geteuid() != 0 else ""
            whole = HOST_SECTIONS if set(HOST_SECTIONS) <= set(sections) else ()
            names = ["everything of the host"] if whole else []
            names += [SECTIONS.get(section, section) for section in sections if section not in whole]
            yield from self._wrapped(_plain("not read: ", "yellow"), f"{', '.join(names)}: {reason}{advice}")

    def _mark(self, result: CheckStatus) -> str:
        return MARKS[result][self._words.glyphs is ASCII]

    def _wrapped(self, head: Text, text: str, style: str = "") -> Iterator[Text]:
        """`text` behind `head`, its further lines below its first."""
        width = max(self._width - head.cell_len, LEAST_WIDTH // 2)
        for number, line in enumerate(wrap(text, width) or [""]):
            yield Text.assemble(head if number == 0 else " " * head.cell_len, (line, style))


def folded_evidence(evidence: Mapping[str, str]) -> dict[str, str]:
    """GPUs with the same evidence share a line: `gpus 0-7: driver 550`."""
    alike: dict[str, list[int]] = {}
    for name, value in evidence.items():
        if match := OF_A_GPU.fullmatch(name):
            alike.setdefault(value, []).append(int(match[1]))
    found: dict[str, str] = {}
    for name, value in evidence.items():
        gpus = alike[value] if OF_A_GPU.fullmatch(name) else []
        found[f"gpus {spans(gpus)}" if len(gpus) > 1 else name] = value
    return found


def _plain(text: str = "", style: str = "") -> Text:
    return Text(text, style)
