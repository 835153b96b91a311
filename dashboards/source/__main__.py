"""Writes dashboards/*.json: `python -m dashboards.source`."""

import importlib
from pathlib import Path

from dashboards.source.build import document
from dashboards.source.panel import Board

NAMES = ("fleet", "node", "workload", "cost", "operations")
PLACE = Path(__file__).resolve().parents[1]


def board(name: str) -> Board:
    """The BOARD of the module of that name."""
    found: Board = importlib.import_module(f"dashboards.source.{name}").BOARD
    return found


def documents() -> dict[Path, str]:
    """Each dashboard's file and what belongs into it."""
    return {PLACE / f"{name}.json": document(board(name)) for name in NAMES}


if __name__ == "__main__":
    for path, text in documents().items():
        path.write_text(text, encoding="utf-8")
