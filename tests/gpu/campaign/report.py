"""The campaign's findings: one line for each thing compared, written to disk at once, and the pages made of them."""

import json
import time
from pathlib import Path
from typing import Any, Literal, NamedTuple

Status = Literal["pass", "differs", "unknown"]


class Line(NamedTuple):
    """One comparison: what is expected (and why, in `note`) beside what was measured."""

    what: str
    expected: Any
    measured: Any
    status: Status
    note: str = ""


class StageResult(NamedTuple):
    """How a stage ended (`done`, or why it did not), how long it took, and all its lines until then."""

    name: str
    outcome: str
    seconds: float
    lines: tuple[Line, ...]


class Findings:
    """The lines of one stage, kept in a file as they come: a stage that is cut off keeps what it found."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, what: str, expected: Any, measured: Any, status: Status, note: str = "") -> None:
        """Keep one line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps([what, expected, measured, status, note], default=str) + "\n")

    def near(self, what: str, expected: float | None, measured: float | None, within: float, note: str = "") -> None:
        """A measured number beside an expected one; `within`: how far it may be away."""
        if expected is None or measured is None:
            self.add(what, expected, measured, "unknown", note)
            return
        status: Status = "pass" if abs(measured - expected) <= within else "differs"
        self.add(
            what, rounded(expected), rounded(measured), status, f"within {within:.3g}" + (f"; {note}" if note else "")
        )

    def between(self, what: str, low: float, high: float, measured: float | None, note: str = "") -> None:
        """A measured number that lies in a range, ends included."""
        status: Status = "unknown" if measured is None else "pass" if low <= measured <= high else "differs"
        self.add(what, f"{rounded(low)} to {rounded(high)}", rounded(measured), status, note)

    def read(self) -> tuple[Line, ...]:
        """All lines so far; one that was cut off is left out."""
        lines = []
        for text in self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else ():
            try:
                lines.append(Line(*json.loads(text)))
            except (ValueError, TypeError):
                continue
        return tuple(lines)


def rounded(value: Any) -> Any:
    """Four digits are enough for a reader."""
    return float(f"{value:.4g}") if isinstance(value, float) and abs(value) < 1e4 else value


def write(out: Path, stages: list[StageResult], started: float, complete: bool) -> None:
    """report.md and report.json, replaced as a whole: whoever reads them in between finds the last state."""
    document = {
        "kind": "GpuCampaign",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "seconds": round(time.time() - started, 1),
        "complete": complete,
        "stages": [stage._asdict() | {"lines": [line._asdict() for line in stage.lines]} for stage in stages],
    }
    for name, text in (("report.json", json.dumps(document, indent=1, default=str)), ("report.md", page(document))):
        (out / f".{name}").write_text(text + "\n", encoding="utf-8")
        (out / f".{name}").replace(out / name)


def page(document: dict[str, Any]) -> str:
    """For a person: what differs first, then every line by stage."""
    state = "complete" if document["complete"] else "not complete: a later stage is missing"
    parts = [f"# gpuwatch on a real GPU\n\nStarted {document['started']}, {document['seconds']} s, {state}.\n"]
    parts.append("| stage | ended | s | pass | differs | unknown |\n|---|---|---|---|---|---|")
    for stage in document["stages"]:
        counts = [sum(line["status"] == status for line in stage["lines"]) for status in ("pass", "differs", "unknown")]
        parts.append(
            f"| {stage['name']} | {_cell(stage['outcome'])} | {stage['seconds']:.1f} | "
            + " | ".join(map(str, counts))
            + " |"
        )
    differing = [
        (stage["name"], line) for stage in document["stages"] for line in stage["lines"] if line["status"] == "differs"
    ]
    parts.append("\n## What differs\n")
    parts += [_row(line, f"{name}: ") for name, line in _headed(differing)] or ["Nothing."]
    for stage in document["stages"]:
        parts.append(f"\n## {stage['name']}\n")
        parts += [_row(line) for _, line in _headed([(stage["name"], line) for line in stage["lines"]])]
    return "\n".join(parts)


def _headed(lines: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    head = dict.fromkeys(Line._fields, "---")
    names = {"what": "what", "expected": "expected", "measured": "measured", "status": "status", "note": "note"}
    return [("", names), ("", head), *lines] if lines else []


def _row(line: dict[str, Any], prefix: str = "") -> str:
    plain = line["what"] not in ("what", "---")
    cells = [
        prefix + line["what"] if plain else line["what"],
        *(line[k] for k in ("expected", "measured", "status", "note")),
    ]
    return "| " + " | ".join(map(_cell, cells)) + " |"


def _cell(value: Any) -> str:
    """Text of a driver or a process in a table of Markdown: one line, bounded, printable."""
    text = "" if value is None else str(value)
    return "".join(c if c.isprintable() else " " for c in text).replace("|", "\\|").replace("<", "&lt;")[:300]
