"""What a dashboard is made of: a Board has sections, a section has panels, and a panel is one row of a table.

    BOARD = Board(
        uid="gpuwatch-node",
        title="gpuwatch / Node",
        description="What is each GPU of this node doing, and why is it slow?",
        variables=(DATASOURCE, CLUSTER, ONE_NODE, GPU),              # variables.py
        sections=(
            Section("Power", (
                Panel(
                    title="Power draw",
                    kind="timeseries",
                    description="What it shows. What is bad. What to do then.",
                    unit="watt",
                    queries=(Query("gpuwatch_gpu_power_watts{@gpu, window='average'}", "GPU {{gpu}}"),),
                    width=12,
                ),
            )),
        ),
    )

Selectors: `@node` in braces stands for the variables cluster and node, `@gpu` for those and gpu;
the others are in selectors.py. Panels flow from left to right and wrap at 24 columns; those beside each other should
be of one height. Kinds `stat`, `bargauge` and `table` ask for the value at the end of the time range, unless a query
says `instant=False`; `min` and `max` bound axes and gauges.

A table joins the results of its queries where all labels they share are equal, and shows the fields named in `columns`,
in that order: labels by their name, numbers as `Value` (one query) or `Value #A`, `Value #B` (several).
Let the queries of one table have the same labels (`sum by (...)`), else rows are not joined as one expects.
"""

from typing import Literal

import msgspec

from dashboards.source.variables import Variable

Kind = Literal["stat", "timeseries", "table", "state-timeline", "heatmap", "bargauge", "text"]
Thresholds = tuple[tuple[float | None, str], ...]
"""Lower bounds and colours, lowest (None) first: `((None, "green"), (5, "red"))`."""


class Query(msgspec.Struct, frozen=True):
    """One PromQL query; `legend` as Grafana's legend format. `instant` None: as the kind of the panel has it."""

    expr: str
    legend: str = ""
    instant: bool | None = None


class State(msgspec.Struct, frozen=True):
    """What a value is called, and its colour: `State("1", "quarantined", "orange")`."""

    value: str
    text: str
    color: str = ""


class Link(msgspec.Struct, frozen=True):
    """A link of a value. Its URL may use Grafana's `${__data.fields.node}` and `${__field.labels.node}`."""

    title: str
    url: str


class Column(msgspec.Struct, frozen=True, kw_only=True):
    """One column of a table. Thresholds and states colour its text, its cell, or (`gauge`) a bar from min to max."""

    field: str
    title: str
    unit: str = ""
    decimals: int | None = None
    thresholds: Thresholds = ()
    states: tuple[State, ...] = ()
    links: tuple[Link, ...] = ()
    color: Literal["none", "text", "cell", "gauge"] = "none"
    min: float | None = None
    max: float | None = None
    width: int | None = None


class Style(msgspec.Struct, frozen=True, kw_only=True):
    """How the series whose legend matches the regular expression `match` are drawn apart from the others.

    `name` replaces the legend.
    """

    match: str
    color: str = ""
    name: str = ""
    unit: str = ""
    dashed: bool = False
    fill: int | None = None
    right_axis: bool = False
    stacked: bool | None = None


class Panel(msgspec.Struct, frozen=True, kw_only=True):
    """One panel. `description`: what it shows, what is bad, what to do. `unit`: Grafana's name of a unit.

    `text` is the Markdown of a text panel. `no_value` is shown instead of "No data" where absence is honest.
    `interval` is the least step: events as bars want one well above the scrape interval, lest bars overlap.
    `trend` draws a stat's history behind it (its query is then a range). `sort`: a table's column, `-` for descending.
    Graphs give each series a colour of its own; other kinds take it from thresholds and states, where there are any.
    """

    title: str
    kind: Kind
    description: str
    unit: str = "short"
    queries: tuple[Query, ...] = ()
    width: int = 8
    height: int = 8
    decimals: int | None = None
    min: float | None = None
    max: float | None = None
    thresholds: Thresholds = ()
    states: tuple[State, ...] = ()
    links: tuple[Link, ...] = ()
    styles: tuple[Style, ...] = ()
    columns: tuple[Column, ...] = ()
    sort: str = ""
    stacked: bool = False
    bars: bool = False
    interval: str = ""
    trend: bool = False
    legend: Literal["table", "list", "hidden"] = "list"
    text: str = ""
    no_value: str = ""


class Section(msgspec.Struct, frozen=True):
    """Panels under a heading; a collapsed section asks its queries only once it is opened."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """One dashboard. `time` is the range it opens with, `refresh` how often it asks again."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    sections: tuple[Section, ...]
    time: str = "now-6h"
    refresh: str = "1m"
