"""Recommendations as files: CSV for a spreadsheet, a shell script to read first, and a folder with all of it.

gpuwatch itself never runs the script.
"""

import csv
import io
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from gpuwatch.cli.console.document import to_json, to_yaml
from gpuwatch.cli.recommend.items import RecommendationItem, RecommendationList
from gpuwatch.cli.recommend.report.page import report
from gpuwatch.cli.recommend.screen import whole_name
from gpuwatch.config import RightsizingConfig
from gpuwatch.model.recommendation import Apply, Finding, Predicted

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What begins a formula (OWASP, CSV injection)."""

Cell = str | float | None

COLUMNS: dict[str, Callable[[RecommendationItem], Cell]] = {
    "id": lambda i: i.id,
    "finding": lambda i: i.kind,
    "action": lambda i: i.action,
    "namespace": lambda i: i.target.namespace,
    "kind": lambda i: i.target.kind,
    "name": lambda i: i.target.name,
    "container": lambda i: i.target.container,
    "image": lambda i: i.target.image,
    "class": lambda i: i.target.work_class,
    "pods": lambda i: " ".join(i.target.pods),
    "nodes": lambda i: " ".join(i.target.nodes),
    "gpus": lambda i: " ".join(i.target.gpus),
    "model": lambda i: i.target.model,
    "current": lambda i: i.current,
    "recommended": lambda i: i.recommended,
    "why": lambda i: i.why,
    "confidence": lambda i: i.confidence,
    "risk": lambda i: i.risk,
    "risk_words": lambda i: i.risk_words,
    "gpu_hours_per_day": lambda i: i.savings.gpu_hours_per_day,
    "watts": lambda i: i.savings.watts,
    "money_per_day": lambda i: i.savings.money_per_day,
    "currency": lambda i: i.savings.currency,
    "days": lambda i: i.evidence.days,
    "coverage": lambda i: i.evidence.coverage,
    "idle_seconds": lambda i: i.evidence.idle_seconds,
    "busy_mean": lambda i: i.evidence.busy.mean if i.evidence.busy else None,
    "busy_p95": lambda i: i.evidence.busy.p95 if i.evidence.busy else None,
    "memory_peak_bytes": lambda i: i.evidence.memory_peak,
    "memory_total_bytes": lambda i: i.evidence.memory_total,
    "memory_needed_bytes": lambda i: _predicted(i).memory_needed,
    "memory_offered_bytes": lambda i: _predicted(i).memory_offered,
    "slowdown_low": lambda i: _predicted(i).slowdown_low,
    "slowdown_high": lambda i: _predicted(i).slowdown_high,
    "commands": lambda i: "\n".join(each.command for each in i.apply if each.command),
    "at": lambda i: f"{i.at:%Y-%m-%dT%H:%M:%SZ}",
    "expires": lambda i: f"{i.expires:%Y-%m-%dT%H:%M:%SZ}",
}
"""The header, and what stands below it; only added to."""


def to_csv(items: Iterable[RecommendationItem]) -> str:
    """Header and lines, each ended by CR LF. What is unknown is empty."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    writer.writerows([_safe(cell(item)) for cell in COLUMNS.values()] for item in items)
    return text.getvalue()


def _predicted(item: RecommendationItem) -> Predicted:
    return item.predicted or Predicted()


def _safe(value: Cell) -> Cell:
    """Numbers stay numbers; text stays text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


PREFACE = """#!/bin/sh
# Made by gpuwatch recommend. Read it, keep what you want, and run that. Every part stands for itself.
set -eu
"""

END = "END-OF-FILE"


def script(items: Iterable[RecommendationItem]) -> str:
    """The commands of all, each below the words for it; files are written into the current directory."""
    parts = [f"\n{_part(item)}\n" for item in items if item.apply]
    return PREFACE + ("".join(parts) or "# There is nothing to apply.\n")


def files(item: RecommendationItem) -> list[tuple[str, Apply]]:
    """(name, what it is for) of every manifest; the same at every run."""
    parts = [part for part in item.apply if part.manifest is not None]
    kinds = [part.what for part in parts]
    return [(_name(item.id, part.what, kinds[:number].count(part.what)), part) for number, part in enumerate(parts)]


def _name(id_: str, what: str, before: int) -> str:
    """One word; `before`: so many of its kind come first."""
    more = f"-{before + 1}" if before else ""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", f"{id_}.{what}{more}").strip("-.") + ".yaml"


def _part(item: RecommendationItem) -> str:
    names = {id(part): name for name, part in files(item)}
    lines = [
        f"# {_line(f'{whole_name(item.target)}: {item.why}')}",
        f"# confidence {item.confidence}, good until {item.expires:%Y-%m-%d %H:%M} UTC",
        f"# risk {item.risk}: {_line(item.risk_words)}",
    ]
    for each in item.apply:
        lines.append(f"# {_line(each.note)}")
        if each.command:
            lines.append(each.command)
        elif each.manifest is not None:
            lines += _here(names[id(each)], each)
    return "\n".join(lines)


def _here(name: str, part: Apply) -> Iterator[str]:
    """A file in the script, where no command carries it."""
    yield f"cat > {shlex.quote(name)} <<'{END}'"
    yield to_yaml(part.manifest)
    yield END


def _line(text: str) -> str:
    """On one line, so that nothing of it leaves the comment."""
    return " ".join(text.split())


REPORT = "report.html"
MANIFESTS = "manifests"
OURS = re.compile(rf"({'|'.join(kind.replace('_', '-') for kind in Finding)})-[0-9a-f]{{6,64}}\.[a-z_]+(-\d+)?\.yaml")
"""Names of manifests that `files` makes."""


def write(folder: Path, found: RecommendationList, config: RightsizingConfig) -> int:
    """How many files were written; those of the same name are replaced, manifests of an earlier time go, others stay.

    Raises:
        OSError: it cannot be written.
    """
    texts = {
        REPORT: report(found, config),
        "recommendations.json": f"{to_json(found)}\n",
        "recommendations.csv": to_csv(found.items),
        "apply.sh": script(found.items),
    }
    for item in found.items:
        texts |= {f"{MANIFESTS}/{name}": f"{to_yaml(part.manifest)}\n" for name, part in files(item)}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFESTS).mkdir(exist_ok=True)
    for path in (folder / MANIFESTS).iterdir():
        if OURS.fullmatch(path.name) and f"{MANIFESTS}/{path.name}" not in texts:
            path.unlink()  # advice that holds no longer
    for name, text in texts.items():
        (folder / name).write_bytes(text.encode())
    return len(texts)
