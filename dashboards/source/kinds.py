"""What each kind of panel needs beyond what all panels have, a function each, in one table."""

from collections.abc import Callable
from typing import Any

from grafana_foundation_sdk.builders import bargauge, common, heatmap, stat, statetimeline, table, text, timeseries
from grafana_foundation_sdk.models import common as model
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig
from grafana_foundation_sdk.models.heatmap import HeatmapColorMode
from grafana_foundation_sdk.models.text import TextMode

from dashboards.source.fields import column
from dashboards.source.panel import Kind, Panel

LEGENDS = {
    "list": model.LegendDisplayMode.LIST,
    "table": model.LegendDisplayMode.TABLE,
    "hidden": model.LegendDisplayMode.HIDDEN,
}


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"])


def _stat(panel: Panel) -> stat.Panel:
    graph = model.BigValueGraphMode.AREA if panel.trend else model.BigValueGraphMode.NONE
    coloured = panel.thresholds or panel.states
    return (
        stat.Panel()
        .graph_mode(graph)
        .color_mode(model.BigValueColorMode.VALUE if coloured else model.BigValueColorMode.NONE)
        .text_mode(model.BigValueTextMode.AUTO)
        .reduce_options(_last())
    )


def _legend(panel: Panel) -> common.VizLegendOptions:
    legend = common.VizLegendOptions().display_mode(LEGENDS[panel.legend]).placement(model.LegendPlacement.BOTTOM)
    legend = legend.show_legend(panel.legend != "hidden")
    return legend.calcs(["lastNotNull", "max"] if panel.legend == "table" else [])


def _timeseries(panel: Panel) -> timeseries.Panel:
    """Gaps stay gaps: where nothing was read, no line is drawn. Counts that are all zero lie on the ground."""
    mode = model.StackingMode.NORMAL if panel.stacked else model.StackingMode.NONE
    counts = panel.unit in ("short", "percentunit") and panel.min == 0 and panel.max is None
    return (
        (timeseries.Panel().axis_soft_max(1) if counts else timeseries.Panel())
        .draw_style(model.GraphDrawStyle.BARS if panel.bars else model.GraphDrawStyle.LINE)
        .line_width(1)
        .fill_opacity(70 if panel.bars else 40 if panel.stacked else 0)
        .show_points(model.VisibilityMode.NEVER)
        .span_nulls(False)
        .stacking(common.StackingConfig().mode(mode).group("A"))
        .legend(_legend(panel))
        .tooltip(common.VizTooltipOptions().mode(model.TooltipDisplayMode.MULTI).sort(model.SortOrder.DESCENDING))
    )


def _table(panel: Panel) -> table.Panel:
    names = [column.field for column in panel.columns]
    steps: dict[str, dict[str, Any]] = {
        "merge": {},
        "filterFieldsByName": {"include": {"names": names}},
        "organize": {"indexByName": {name: index for index, name in enumerate(names)}, "renameByName": {}},
    }
    if panel.sort:
        field = next(column.field for column in panel.columns if column.title == panel.sort.lstrip("-"))
        steps["sortBy"] = {"fields": {}, "sort": [{"field": field, "desc": panel.sort.startswith("-")}]}
    built = table.Panel().show_header(True).cell_height(model.TableCellHeight.SM)
    for name, options in steps.items():
        built = built.with_transformation(DataTransformerConfig(id_val=name, options=options))
    for row in panel.columns:
        built = built.override_by_name(row.field, column(row))
    return built


def _timeline(panel: Panel) -> statetimeline.Panel:
    return (
        statetimeline.Panel()
        .merge_values(True)
        .show_value(model.VisibilityMode.NEVER)
        .row_height(0.85)
        .line_width(0)
        .fill_opacity(80)
        .legend(_legend(panel))
        .tooltip(common.VizTooltipOptions().mode(model.TooltipDisplayMode.SINGLE).sort(model.SortOrder.NONE))
    )


def _heatmap(panel: Panel) -> heatmap.Panel:
    """A row for each series, in the order of their names; colour is the value."""
    color = heatmap.HeatmapColorOptions().mode(HeatmapColorMode.SCHEME).scheme("Blues").steps(64)
    color = color if panel.min is None else color.min(panel.min)
    color = color if panel.max is None else color.max(panel.max)
    return (
        heatmap.Panel()
        .calculate(False)
        .color(color)
        .cell_gap(1)
        .rows_frame(heatmap.RowsHeatmapOptions().layout(model.HeatmapCellLayout.AUTO))
        .cell_values(heatmap.CellValues().unit(panel.unit))
        .y_axis(heatmap.YAxisConfig().axis_placement(model.AxisPlacement.LEFT).unit("short"))
        .show_legend()
        .show_tooltip()
    )


def _bargauge(panel: Panel) -> bargauge.Panel:
    return (
        bargauge.Panel()
        .orientation(model.VizOrientation.HORIZONTAL)
        .display_mode(model.BarGaugeDisplayMode.BASIC)
        .show_unfilled(True)
        .reduce_options(_last())
    )


def _text(panel: Panel) -> text.Panel:
    return text.Panel().mode(TextMode.MARKDOWN).content(panel.text)


KINDS: dict[Kind, Callable[[Panel], Any]] = {
    "stat": _stat,
    "timeseries": _timeseries,
    "table": _table,
    "state-timeline": _timeline,
    "heatmap": _heatmap,
    "bargauge": _bargauge,
    "text": _text,
}
AT_THE_END: tuple[Kind, ...] = ("stat", "table", "bargauge")
"""Kinds that show the value at the end of the time range; their queries ask for no more."""
