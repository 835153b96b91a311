"""The committed dashboards as tests read them: panels, queries and links out of the JSON that Grafana gets."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

PLACE = Path(__file__).parents[2] / "dashboards"
FILES = tuple(PLACE / f"{name}.json" for name in ("fleet", "node", "workload", "cost", "operations"))


class Panel(NamedTuple):
    """A panel that is no row. `row`: the heading it is under."""

    board: str
    row: str
    json: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.board} / {self.row} / {self.title}"

    @property
    def title(self) -> str:
        return self.json["title"]

    @property
    def unit(self) -> str:
        return self.json["fieldConfig"]["defaults"].get("unit", "")

    @property
    def columns(self) -> list[str]:
        """The fields a table shows, in its order."""
        steps = {step["id"]: step["options"] for step in self.json.get("transformations", ())}
        return steps["filterFieldsByName"]["include"]["names"] if "filterFieldsByName" in steps else []


class Target(NamedTuple):
    """A query of a panel; `instant`: for the value at the end of the range only."""

    panel: Panel
    json: dict[str, Any]

    @property
    def expr(self) -> str:
        return self.json["expr"]

    @property
    def instant(self) -> bool:
        return self.json["instant"]

    def __str__(self) -> str:
        return f"{self.panel} {self.json['refId']}"


@cache
def load(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


def panels(file: Path) -> Iterator[Panel]:
    """All panels of a dashboard, those of collapsed rows too."""
    row = ""
    for each in load(file)["panels"]:
        if each["type"] == "row":
            row = each["title"]
        for panel in each["panels"] if each["type"] == "row" else [each]:
            yield Panel(file.stem, row, panel)


@cache
def all_panels() -> list[Panel]:
    return [panel for file in FILES for panel in panels(file)]


@cache
def all_targets() -> list[Target]:
    return [Target(panel, target) for panel in all_panels() for target in panel.json.get("targets", ())]


def all_variables() -> list[tuple[str, dict[str, Any]]]:
    """(dashboard, variable)"""
    return [(file.stem, variable) for file in FILES for variable in load(file)["templating"]["list"]]


def all_annotations() -> list[tuple[str, dict[str, Any]]]:
    """(dashboard, annotation)"""
    return [(file.stem, annotation) for file in FILES for annotation in load(file)["annotations"]["list"]]


def links(panel: Panel) -> Iterator[dict[str, str]]:
    """Data links of all its fields."""
    config = panel.json.get("fieldConfig", {"defaults": {}})
    yield from config["defaults"].get("links", ())
    for override in config.get("overrides", ()):
        for setting in override["properties"]:
            yield from setting["value"] if setting["id"] == "links" else ()


def label_values(variable: dict[str, Any]) -> tuple[str, str]:
    """(series, label) of a variable's query."""
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", variable["query"]["query"])
    assert found, variable["query"]
    return found[1], found[2]
