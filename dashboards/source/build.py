"""From a Board to the dashboard's JSON: positions, ids and everything that all panels have in common."""

import json
from collections.abc import Iterator
from typing import Any

from grafana_foundation_sdk.builders import dashboard as build
from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as model
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.source import fields
from dashboards.source.annotations import annotations
from dashboards.source.kinds import AT_THE_END, KINDS
from dashboards.source.panel import Board, Panel, Query, Section, Style
from dashboards.source.selectors import expand
from dashboards.source.variables import Variable

SCHEMA_VERSION = 39
"""What Grafana 11 writes; newer ones migrate it as they load it."""
COLUMNS = 24
TAGS = ["gpuwatch", "gpu", "nvidia"]
NOISE: dict[str, Any] = {
    "auto": False,
    "auto_count": 30,
    "auto_min": "10s",
    "id": "00000000-0000-0000-0000-000000000000",
    "mappings": [],
    "overrides": [],
    "repeatDirection": "h",
    "skipUrlSync": False,
    "style": "dark",
    "transformations": [],
    "transparent": False,
}
SOURCE = model.DataSourceRef(type_val="prometheus", uid="${datasource}")


def document(board: Board) -> str:
    """The JSON file of a dashboard; the same text for the same board."""
    made = json.loads(json.dumps(_dashboard(board).build(), cls=JSONEncoder))
    made["schemaVersion"] = SCHEMA_VERSION
    made["annotations"] = {
        "list": [json.loads(json.dumps(row.json(SOURCE), cls=JSONEncoder)) for row in annotations(board.uid)]
    }
    return json.dumps(_without_noise(made), indent=0, ensure_ascii=False) + "\n"


def _without_noise(made: Any) -> Any:
    """Without what the SDK writes and Grafana takes for granted: `kubectl apply` takes files of 256 KiB at most."""
    if isinstance(made, list):
        return [_without_noise(each) for each in made]
    if isinstance(made, dict):
        return {key: _without_noise(value) for key, value in made.items() if NOISE.get(key, made) != value}
    return made


def _dashboard(board: Board) -> build.Dashboard:
    made = (
        build.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags(TAGS)
        .readonly()
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
        .time(board.time, "now")
        .refresh(board.refresh)
        .timezone("browser")
        .variables([_variable(variable) for variable in board.variables])
        .link(
            build.DashboardLink("gpuwatch")
            .type(model.DashboardLinkType.DASHBOARDS)
            .tags(TAGS[:1])
            .keep_time(True)
            .include_vars(True)
        )
    )
    panels = _Grid().place(board.sections)
    for heading, inside in panels:
        made = made.with_row(heading)
        for panel in inside:
            made = made.with_panel(panel)
    return made


class _Grid:
    """Gives ids and positions, from the top down."""

    def __init__(self) -> None:
        self._id, self._y = 0, 0

    def place(self, sections: tuple[Section, ...]) -> Iterator[tuple[build.Row, list[Any]]]:
        """Each section's heading, and its panels if it is open; a collapsed heading keeps its own."""
        for section in sections:
            row = build.Row(section.title).id(self._next()).collapsed(section.collapsed)
            row = row.grid_pos(model.GridPos(h=1, w=COLUMNS, x=0, y=self._y))
            self._y += 1
            start, panels = self._y, list(self._flow(section.panels))
            if section.collapsed:
                self._y = start
                for panel in panels:
                    row = row.with_panel(panel)
            yield row, [] if section.collapsed else panels

    def _flow(self, panels: tuple[Panel, ...]) -> Iterator[Any]:
        x = height = 0
        for panel in panels:
            if x + panel.width > COLUMNS:
                x, height, self._y = 0, 0, self._y + height
            position = model.GridPos(h=panel.height, w=panel.width, x=x, y=self._y)
            yield _panel(panel).id(self._next()).grid_pos(position)
            x, height = x + panel.width, max(height, panel.height)
        self._y += height

    def _next(self) -> int:
        self._id += 1
        return self._id


def _panel(panel: Panel) -> Any:
    """What all kinds share; the builders of the SDK have these methods, but no common type that says so."""
    made = KINDS[panel.kind](panel).title(panel.title).description(panel.description)
    if panel.kind == "text":
        return made
    made = made.datasource(SOURCE).unit(panel.unit).mappings(fields.mappings(panel.states))
    colored = panel.kind == "bargauge" or (bool(panel.thresholds) and panel.kind != "timeseries")
    mode = model.FieldColorModeId.THRESHOLDS if colored else model.FieldColorModeId.PALETTE_CLASSIC
    made = made.color_scheme(build.FieldColor().mode(mode))
    for color, matching in fields.plain_colors(panel):
        made = made.override_by_regexp(f"/{matching}/", fields.style(Style(match=matching, color=color)))
    plain = ((None, "blue" if panel.kind == "bargauge" else "text"),)
    made = made.thresholds(fields.thresholds(panel.thresholds or plain))
    for name, value in (("decimals", panel.decimals), ("min", panel.min), ("max", panel.max)):
        made = made if value is None else getattr(made, name)(value)
    made = made.data_links(fields.links(panel.links)) if panel.links else made
    made = made.no_value(panel.no_value) if panel.no_value else made
    made = made.interval(panel.interval) if panel.interval else made
    for row in panel.styles:
        made = made.override_by_regexp(f"/{row.match}/", fields.style(row))
    for index, query in enumerate(panel.queries):
        made = made.with_target(_target(panel, query, chr(ord("A") + index)))
    return made


def _target(panel: Panel, query: Query, ref: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(expand(query.expr)).ref_id(ref).datasource(SOURCE)
    at_the_end = panel.kind in AT_THE_END and not panel.trend if query.instant is None else query.instant
    made = made.instant() if at_the_end else made.range()
    if panel.kind == "table":
        return made.format(PromQueryFormat.TABLE)
    return made.legend_format(query.legend or "__auto")


def _variable(variable: Variable) -> Any:
    match variable.kind:
        case "datasource":
            return build.DatasourceVariable(variable.name).label(variable.label).type(variable.query)
        case "textbox":
            return build.TextBoxVariable(variable.name).label(variable.label).default_value(variable.query)
        case "query":
            return _labels_variable(variable)


def _labels_variable(variable: Variable) -> build.QueryVariable:
    made = (
        build.QueryVariable(variable.name)
        .label(variable.label)
        .datasource(SOURCE)
        .query({"query": variable.query, "refId": f"{variable.name}-labels"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NUMERICAL_ASC)
        .multi(variable.many)
        .include_all(variable.many)
    )
    if not variable.many:
        return made
    everything = model.VariableOption(selected=True, text=["All"], value=["$__all"])
    return made.all_value(".*").current(everything)
