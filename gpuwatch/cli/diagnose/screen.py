"""The screen of `diagnose`: the verdict, where to begin, then stage by stage what is wrong and what helps."""

import os
import re
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from rich.text import Text

from gpuwatch.cli.console.terminal import ASCII
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.diagnose.document import verdict
from gpuwatch.cli.diagnose.remedies import Remedies
from gpuwatch.cli.diagnose.sections import called
from gpuwatch.cli.look.screen import NODE_LINE, head_line, node_parts
from gpuwatch.diagnose.check import spans
from gpuwatch.diagnose.facts import NodeFacts
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
"""One, and several; in the order in which a stage tells them."""

STAGE_WIDTH, INDENT, LEAST_WIDTH = 12, 7, 40
EVIDENCE = 8
"""Lines of evidence on a screen; all of them with -o wide."""

AS_ROOT = "run as root to see it"
OF_A_GPU = re.compile(r"gpu (\d+)")
COMMAND_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")


class Screen:
    """Draws one diagnosis into `width` columns; with `wide` every check, all evidence, and each remedy in full."""

    def __init__(self, words: Words, width: int, *, wide: bool = False) -> None:
        self._words, self._width, self._wide = words, max(width, LEAST_WIDTH), wide
        self._remedies = Remedies()

    def lines(self, diagnosis: Diagnosis, facts: NodeFacts) -> list[Text]:
        """All of it, from the top, in blocks."""
        parts = node_parts(facts.view, self._words.glyphs) if facts.view else []
        head = head_line(diagnosis.node, parts, verdict(diagnosis), self._words, min(self._width, NODE_LINE))
        first = diagnosis.first
        wrong = [result for result in diagnosis.results if result.result in (CheckStatus.FAIL, CheckStatus.WARN)]
        blocks = [[head], list(self._told(first)) if first else []]
        blocks += [[line for stage in CheckStage for line in self._stage(stage, diagnosis)]]
        blocks += [list(self._told(result)) for result in wrong if result is not first]
        unjudged = (
            [] if any(result.result is not CheckStatus.SKIP for result in diagnosis.results) else diagnosis.results
        )
        blocks += [list(self._every(diagnosis.results)) if self._wide else list(self._unjudged(unjudged))]
        blocks += [list(self._unseen(facts))]
        return [line for block in blocks if block for line in (_plain(), *block)][1:]

    def _stage(self, stage: CheckStage, diagnosis: Diagnosis) -> Iterator[Text]:
        """`driver      ✗ 1 failed, 6 passed, 2 blocked by D01`; nothing for a stage that was not asked for."""
        results = [result for result in diagnosis.results if result.stage is stage]
        counts = Counter(result.result for result in results if result.blocked_by is None)
        blocked = Counter(result.blocked_by for result in results if result.blocked_by is not None)
        told = [f"{counts[result]} {word[counts[result] != 1]}" for result, word in COUNTED.items() if counts[result]]
        told += [f"{count} blocked by {id_}" for id_, count in blocked.items()]
        worst = next((result for result in COUNTED if counts[result]), CheckStatus.SKIP)
        mark = (self._mark(worst), STYLES[worst])
        if results:
            yield from self._wrapped(Text.assemble(f"{stage.value:<{STAGE_WIDTH}}", mark, " ", end=""), ", ".join(told))

    def _every(self, results: Sequence[CheckResult]) -> Iterator[Text]:
        for result in results:
            text = f"{result.title}: {result.message}" if result.message else result.title
            yield from self._wrapped(self._head(result), text)

    def _told(self, result: CheckResult) -> Iterator[Text]:
        """What is wrong, what shows it, what to do."""
        yield from self._wrapped(self._head(result), result.message or result.title, STYLES[result.result])
        lines = (f"{name}: {value}" for name, value in _folded(result.evidence).items())
        evidence = [line for line in lines if line.casefold() != result.message.casefold()]
        shown = evidence if self._wide or len(evidence) <= EVIDENCE else evidence[: EVIDENCE - 1]
        for line in shown:
            yield from self._wrapped(_plain(" " * INDENT), line, "dim")
        if len(shown) < len(evidence):
            yield _plain(f"{' ' * INDENT}and {len(evidence) - len(shown)} more: -o wide", "dim")
        remedy = result.remedy if self._wide else self._remedies.brief(result.id, result.remedy)
        if remedy:
            yield from self._wrapped(_plain(f"{' ' * INDENT}{self._words.glyphs.arrow} "), remedy)
        for command in result.commands:
            yield from self._command(command)

    def _head(self, result: CheckResult) -> Text:
        style = STYLES[result.result]
        return Text.assemble((self._mark(result.result), style), f" {result.id:<{INDENT - 2}}", end="")

    def _unjudged(self, results: Sequence[CheckResult]) -> Iterator[Text]:
        """Why each was skipped, together where the reason is the same."""
        reasons: dict[str, list[str]] = {}
        for result in results:
            reasons.setdefault(result.message, []).append(result.id)
        for reason, ids in reasons.items():
            yield from self._wrapped(_plain("not judged: ", "yellow"), f"{', '.join(ids)}: {reason}")

    def _unseen(self, facts: NodeFacts) -> Iterator[Text]:
        """What could not be seen, together where the reason is the same."""
        reasons: dict[tuple[str, bool], list[str]] = {}
        for section, reason in facts.unread.items():
            reasons.setdefault((reason, section in facts.denied), []).append(section)
        for (reason, denied), sections in reasons.items():
            advice = f"; {AS_ROOT}" if denied and os.geteuid() != 0 else ""
            yield from self._wrapped(_plain("not seen: ", "yellow"), f"{called(sections)}: {reason}{advice}")

    def _mark(self, result: CheckStatus) -> str:
        return MARKS[result][self._words.glyphs is ASCII]

    def _wrapped(self, head: Text, text: str, style: str = "") -> Iterator[Text]:
        """`text` behind `head`, its further lines below its first."""
        width = max(self._width - head.cell_len, LEAST_WIDTH // 2)
        for number, line in enumerate(textwrap.wrap(text, width) or [""]):
            yield Text.assemble(head if number == 0 else " " * head.cell_len, (line, style), end="")

    def _command(self, command: str) -> Iterator[Text]:
        """As it can be copied, also where it takes several lines."""
        blank, lines = " " * (INDENT + 2), [""]
        for word in COMMAND_WORD.findall(command):
            if lines[-1] and len(blank) + len(lines[-1]) + len(word) + 3 > self._width:
                lines[-1] += " \\"
                lines.append("  " + word)
            else:
                lines[-1] += f" {word}" if lines[-1] else word
        yield from (Text.assemble(blank, (line, "bold"), end="") for line in lines)


def _folded(evidence: Mapping[str, str]) -> dict[str, str]:
    """GPUs of which the same is told share a line: `gpus 0-7: driver 550`."""
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
    return Text(text, style, end="")
