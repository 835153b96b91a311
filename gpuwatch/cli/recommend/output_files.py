"""Recommendations as files: CSV for a spreadsheet, a shell script to read first, and a folder with all of it.

gpuwatch itself never runs the script.
"""

import csv
import errno
import io
import re
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path

from gpuwatch.cli.console.document import to_json, to_yaml
from gpuwatch.cli.recommend.items import RecommendationItem, RecommendationList
from gpuwatch.cli.recommend.screen import whole_name
from gpuwatch.config.named_file import replacing
from gpuwatch.model.text import visible, visible_lines
from gpuwatch.rightsizing.model.recommendation import Apply, FindingKind, Predicted

NONE = Predicted()

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Characters that begin a formula in a spreadsheet (OWASP, CSV injection)."""

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
    "risk_text": lambda i: i.risk_text,
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
    "memory_needed_bytes": lambda i: (i.predicted or NONE).memory_needed,
    "memory_offered_bytes": lambda i: (i.predicted or NONE).memory_offered,
    "slowdown_low": lambda i: (i.predicted or NONE).slowdown_low,
    "slowdown_high": lambda i: (i.predicted or NONE).slowdown_high,
    "commands": lambda i: "\n".join(each.command for each in i.apply if each.command),
    "at": lambda i: f"{i.at:%Y-%m-%dT%H:%M:%SZ}",
    "expires": lambda i: f"{i.expires:%Y-%m-%dT%H:%M:%SZ}",
}
"""Header -> cell of an item. New columns may be added, none is removed."""


def to_csv(items: Iterable[RecommendationItem]) -> str:
    """Header and lines, each ended by CR LF. What is unknown is empty; text has no control characters but line ends."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for item in items:
        cells: list[Cell] = []
        for column in COLUMNS.values():
            cell = column(item)
            if isinstance(cell, str):
                # behind an apostrophe a spreadsheet takes a formula for text
                cell = visible_lines(f"'{cell}" if cell.startswith(FORMULA) else cell)
            cells.append(cell)
        writer.writerow(cells)
    return text.getvalue()


PREFACE = """#!/bin/sh
# Made by gpuwatch recommend. Read it, keep what you want, and run that. Every part stands for itself.
set -eu
"""

END = "END-OF-FILE"


def script(items: Iterable[RecommendationItem]) -> str:
    """The commands of all items, each below its note; the script writes files into the current directory."""
    parts = []
    for item in items:
        if not item.apply:
            continue
        names = {id(part): name for name, part in files(item)}
        lines = [
            f"# {one_line(f'{whole_name(item.target)}: {item.why}')}",
            f"# confidence {item.confidence}, good until {item.expires:%Y-%m-%d %H:%M} UTC",
            f"# risk {item.risk}: {one_line(item.risk_text)}",
        ]
        for each in item.apply:
            lines.append(f"# {one_line(each.note)}")
            if each.command:
                lines.append(each.command)
            elif each.manifest is not None:
                lines += [f"cat > {shlex.quote(names[id(each)])} <<'{END}'", to_yaml(each.manifest), END]
        parts.append("\n" + "\n".join(lines) + "\n")
    return PREFACE + ("".join(parts) or "# There is nothing to apply.\n")


def files(item: RecommendationItem) -> list[tuple[str, Apply]]:
    """(name, the step it is for) of every manifest; the same at every run."""
    found: list[tuple[str, Apply]] = []
    for part in item.apply:
        if part.manifest is not None:
            before = sum(each.what == part.what for _, each in found)
            name = f"{item.id}.{part.what}{f'-{before + 1}' if before else ''}"
            found.append((re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") + ".yaml", part))
    return found


def one_line(text: str) -> str:
    """The text on one line, so that all of it stays in the comment."""
    return visible(" ".join(text.split()))


TABLE = "recommendations.csv"
MANIFESTS = "manifests"
OURS = re.compile(
    rf"({'|'.join(kind.replace('_', '-') for kind in FindingKind)})-[0-9a-f]{{6,64}}\.[a-z_]+(-\d+)?\.yaml"
)
"""Names of manifests that `files` makes."""


def write(folder: Path, found: RecommendationList) -> int:
    """The number of files written; those of the same name are replaced, older manifests deleted, others kept.

    Raises:
        OSError: it cannot be written, or its folder of manifests is a symbolic link.
    """
    texts = {
        "recommendations.json": f"{to_json(found)}\n",
        TABLE: to_csv(found.items),
        "apply.sh": script(found.items),
    }
    for item in found.items:
        texts |= {f"{MANIFESTS}/{name}": f"{to_yaml(part.manifest)}\n" for name, part in files(item)}
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / MANIFESTS).is_symlink():
        raise OSError(errno.ELOOP, "it is a link", str(folder / MANIFESTS))
    (folder / MANIFESTS).mkdir(exist_ok=True)
    for name, text in texts.items():
        with replacing(folder / name) as file:
            file.write(text.encode())
    for path in (folder / MANIFESTS).iterdir():  # last: what is there stays while its disk is full
        if OURS.fullmatch(path.name) and f"{MANIFESTS}/{path.name}" not in texts:
            path.unlink()  # a recommendation that no longer holds
    return len(texts)


def text(found: RecommendationList, output: str) -> str:
    """The recommendations as `-o OUTPUT` prints them: json, yaml, csv, name or apply."""
    texts: dict[str, Callable[[], str]] = {
        "json": lambda: f"{to_json(found)}\n",
        "yaml": lambda: f"{to_yaml(found)}\n",
        "csv": lambda: to_csv(found.items),
        "name": lambda: "".join(f"recommendation/{item.id}\n" for item in found.items),
        "apply": lambda: script(found.items),
    }
    return texts[output]()
