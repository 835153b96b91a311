"""Units, colours, thresholds, value mappings and links of fields, in Grafana's terms."""

import re
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.models import dashboard as model

from dashboards.source.panel import Column, Link, Panel, State, Style, Thresholds

LABEL = "string"
"""The unit of labels: else a process id or serial number is written as 2.15 Mil."""
EMPTY_CELL = "–"
"""Where a row has no such value; the panel's own text is for a table without rows."""

CELLS: dict[str, dict[str, str]] = {
    "none": {"type": "auto"},
    "text": {"type": "color-text"},
    "cell": {"type": "color-background", "mode": "basic"},
    "gauge": {"type": "gauge", "mode": "basic", "valueDisplayMode": "text"},
}


PLAIN_COLORS = ("blue", "green", "purple", "yellow", "light-blue", "light-green", "light-purple", "#8ab8a8")
"""Of series that are neither good nor bad: no red and no orange, which mean that something is wrong."""


def plain_colors(panel: Panel) -> Iterator[tuple[str, str]]:
    """Colour and regular expression of legends, for graphs that number GPUs or have a few series of known names."""
    if panel.kind != "timeseries":
        return
    legends = [query.legend for query in panel.queries]
    for place, color in enumerate(PLAIN_COLORS):
        if any("GPU {{gpu}}" in legend for legend in legends):
            yield color, rf"GPU ({place}|{place + len(PLAIN_COLORS)})\b"
        elif place < len(legends) and "{{" not in legends[place]:
            yield color, f"^{re.escape(legends[place])}$"


def thresholds(bounds: Thresholds) -> build.ThresholdsConfig:
    """Absolute lower bounds."""
    steps = [model.Threshold(value=value, color=color) for value, color in bounds]
    return build.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps)


def mappings(states: tuple[State, ...]) -> list[model.ValueMapping]:
    """One value mapping for all states."""
    results = {
        state.value: model.ValueMappingResult(text=state.text, color=state.color or None, index=index)
        for index, state in enumerate(states)
    }
    return [model.ValueMap(options=results)] if results else []


def links(rows: tuple[Link, ...]) -> list[build.DashboardLink]:
    """Data links: what a click on a value offers."""
    return [build.DashboardLink(link.title).url(link.url) for link in rows]


def column(row: Column) -> list[model.DynamicConfigValue]:
    """How the cells of a column look."""
    values: dict[str, Any] = {
        "displayName": row.title,
        "unit": row.unit or ("" if row.field.startswith("Value") else LABEL),
        "decimals": row.decimals,
        "min": row.min,
        "max": row.max,
        "thresholds": thresholds(row.thresholds).build() if row.thresholds else None,
        "color": {"mode": "thresholds"} if row.thresholds else None,
        "mappings": mappings(row.states),
        "links": [{"title": link.title, "url": link.url} for link in row.links],
        "custom.cellOptions": CELLS[row.color] if row.color != "none" else None,
        "custom.width": row.width,
        "noValue": EMPTY_CELL,
    }
    return _properties(values)


def style(row: Style) -> list[model.DynamicConfigValue]:
    """How one series of a graph differs from the others."""
    values: dict[str, Any] = {
        "color": {"mode": "fixed", "fixedColor": row.color} if row.color else None,
        "displayName": row.name,
        "unit": row.unit,
        "custom.lineStyle": {"fill": "dash", "dash": [10, 10]} if row.dashed else None,
        "custom.fillOpacity": row.fill if row.fill is not None else (0 if row.dashed else None),
        "custom.axisPlacement": "right" if row.right_axis else None,
        "custom.stacking": None if row.stacked is None else {"mode": "normal" if row.stacked else "none", "group": "A"},
    }
    return _properties(values)


def _properties(values: dict[str, Any]) -> list[model.DynamicConfigValue]:
    return [
        model.DynamicConfigValue(id_val=name, value=value)
        for name, value in values.items()
        if value not in (None, "", [])
    ]
