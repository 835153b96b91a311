"""Fills in what Grafana fills in: dashboard variables and times."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dashboards.history.fleet import STEP
from dashboards.preview.stories import ALL, Story

AND = " + "
"""Between several values of a variable, as Grafana shows them."""

_VARIABLE = re.compile(r"\$\{(\w+)(?::\w+)?\}|\[\[(\w+)\]\]|\$(\w+)")


class Chosen(NamedTuple):
    """A variable as its drop-down shows it, and as queries get it."""

    label: str
    shown: str
    value: str


def choose(dashboard: Mapping[str, Any], story: Story) -> dict[str, Chosen]:
    """Every variable that people see."""
    return {
        each["name"]: _chosen(each, story.variables.get(each["name"]))
        for each in dashboard["templating"]["list"]
        if each.get("hide", 0) != 2
    }


def _chosen(variable: Mapping[str, Any], wanted: str | None) -> Chosen:
    label = variable.get("label") or variable["name"]
    if variable["type"] == "datasource":
        return Chosen(label, "Prometheus", "prometheus")
    if variable["type"] in ("textbox", "constant"):
        value = wanted or str(variable.get("query", ""))
        return Chosen(label, value, value)
    current = wanted or _current(variable)
    if current == ALL:
        return Chosen(label, "All", variable.get("allValue") or ".*")
    several = current.split(AND)
    return Chosen(label, current, f"({'|'.join(several)})" if len(several) > 1 else current)


def _current(variable: Mapping[str, Any]) -> str:
    """What the dashboard comes with."""
    value = (variable.get("current") or {}).get("value")
    first = value[0] if isinstance(value, list) and value else value
    return str(first) if first else ALL if variable.get("includeAll") else ""


def fill(text: str, chosen: Mapping[str, Chosen], story: Story, step: float = STEP) -> str:
    """The text with everything put in; an unknown name stays as it is. `step`: seconds between points."""
    seconds = round(story.end - story.begin)
    known = {
        "__interval": f"{step:.0f}s",
        "__interval_ms": f"{step * 1000:.0f}",
        "__rate_interval": f"{max(step + STEP, 4 * STEP):.0f}s",
        "__range": f"{seconds}s",
        "__range_s": str(seconds),
        "__range_ms": str(seconds * 1000),
        "__from": f"{story.begin * 1000:.0f}",
        "__to": f"{story.end * 1000:.0f}",
        **{name: each.value for name, each in chosen.items()},
    }
    return _VARIABLE.sub(lambda found: known.get(found[1] or found[2] or found[3], found[0]), text)
