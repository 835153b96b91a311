"""The preview: variables and times are filled in, panels lie as in Grafana, and one without data is named."""

from typing import Any

import pytest

from dashboards.history.fleet import BEGIN, END, NODES
from dashboards.preview.picture import compacted, opened, picture, rows
from dashboards.preview.stories import STORIES, Story, node_of
from dashboards.preview.variables import choose, fill

STORY = Story("any", "story", {"node": "gpu-west-02", "pod": "a + b"}, begin=END - 600, end=END)
VARIABLES: list[dict[str, Any]] = [
    {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"},
    {"name": "cluster", "type": "query", "includeAll": True, "allValue": ".*"},
    {"name": "node", "type": "query"},
    {"name": "pod", "type": "query", "includeAll": True},
    {"name": "price", "type": "textbox", "query": "2.5", "label": "Price"},
    {"name": "secret", "type": "query", "hide": 2},
]


def dashboard(*panels: dict[str, Any], annotations: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
    return {
        "title": "Any",
        "templating": {"list": VARIABLES},
        "annotations": {"list": list(annotations)},
        "panels": list(panels),
    }


def panel(number: int, x: int = 0, y: int = 0, w: int = 12, h: int = 8, **more: Any) -> dict[str, Any]:
    place = {"x": x, "y": y, "w": w, "h": h}
    return {"id": number, "type": "timeseries", "title": f"Panel {number}", "gridPos": place, **more}


def places(panels: list[dict[str, Any]]) -> dict[int, int]:
    return {each["id"]: each["gridPos"]["y"] for each in panels}


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ('up{cluster=~"$cluster", node="${node}"}', 'up{cluster=~".*", node="gpu-west-02"}'),
        ("rate(x[$__rate_interval]) * $price", "rate(x[240s]) * 2.5"),
        ("x[$__range] - ${__range_s} - $__interval", "x[600s] - 600 - 60s"),
        ('{pod=~"$pod"}', '{pod=~"(a|b)"}'),
        ("[[node:raw]] $unknown {{label}} \\$", "[[node:raw]] $unknown {{label}} \\$"),
    ],
)
def test_variables_and_times_are_filled_in(text: str, filled: str):
    assert fill(text, choose(dashboard(), STORY), STORY) == filled


def test_a_longer_step_makes_longer_rates():
    assert fill("[$__rate_interval] [$__interval]", {}, STORY, step=300) == "[360s] [300s]"


def test_people_see_what_is_chosen():
    chosen = choose(dashboard(), STORY)
    assert [(each.label, each.shown) for each in chosen.values()] == [
        ("Data source", "Prometheus"),
        ("cluster", "All"),
        ("node", "gpu-west-02"),
        ("pod", "a + b"),
        ("Price", "2.5"),
    ]


def test_a_folded_row_unfolds_and_moves_the_rest_down():
    row = {**panel(2, y=8, w=24, h=1), "type": "row", "panels": [panel(3, y=9), panel(4, x=12, y=9)]}
    laid = opened([panel(1), row, panel(5, y=9)])
    assert places(laid) == {1: 0, 2: 8, 3: 9, 4: 9, 5: 17}
    assert rows(laid) == 25


def test_panels_rise_to_fill_what_is_free_above_them():
    laid = compacted([panel(1, w=12, h=4), panel(2, x=12, w=12, h=8), panel(3, w=12, h=4, y=8), panel(4, w=24, y=12)])
    assert places(laid) == {1: 0, 2: 0, 3: 4, 4: 8}


def asking(number: int, query: str, **more: Any) -> dict[str, Any]:
    return panel(number, y=8 * number, targets=[{"refId": "A", "expr": query}], **more)


def test_only_panels_that_should_have_data_are_named_as_without(url: str):
    drawn, empty = picture(
        dashboard(
            asking(1, 'gpuwatch_gpus{node="$node", state="healthy"}'),
            asking(2, "no_such_metric"),
            asking(3, "no_such_metric", fieldConfig={"defaults": {"noValue": "honestly none"}, "overrides": []}),
        ),
        STORY,
        url,
    )
    assert empty == ["Panel 2"]
    (found,) = drawn["panels"][0]["targets"][0]["result"]
    assert [float(value) for _, value in found["values"]] == [7.0] * 11


def test_a_folded_row_that_has_nothing_to_say_stays_folded(url: str):
    silent = {
        **panel(1, w=24, h=1),
        "type": "row",
        "panels": [asking(2, "no_such_metric", fieldConfig={"defaults": {"noValue": "-"}})],
    }
    telling = {**panel(3, y=1, w=24, h=1), "type": "row", "panels": [asking(4, "up")]}
    drawn, _ = picture(dashboard(silent, telling), STORY, url)
    assert [(each["id"], each.get("folded", False)) for each in drawn["panels"]] == [(1, True), (3, False), (4, False)]


def test_annotations_are_marks_once_each(url: str):
    lost = 'gpuwatch_gpu_xid_last_timestamp_seconds{node="$node", xid="79"} * 1000'
    began = 'changes(gpuwatch_remediator_quarantined{node=~"$node"}[2m]) > 0'
    by_value = {"enable": True, "expr": lost, "useValueForTime": "on", "iconColor": "red"}
    by_time = {"enable": True, "expr": began, "iconColor": "purple"}
    off = {"enable": False, "expr": "up"}
    story = STORY._replace(begin=BEGIN)
    drawn, _ = picture(dashboard(panel(1), annotations=(by_value, by_time, off)), story, url)
    fault = BEGIN + next(node.begins for node in NODES if node.name == "gpu-west-02") + 60
    red, purple = ([m["time"] / 1000 for m in drawn["marks"] if m["color"] == color] for color in ("red", "purple"))
    assert red == [pytest.approx(fault, abs=2)]
    assert purple == [pytest.approx(fault, abs=60)]


def test_a_query_that_is_refused_is_reported(url: str):
    with pytest.raises(RuntimeError, match=r"in sum\($"):
        picture(dashboard(asking(1, "sum(")), STORY, url)


def test_stories_are_of_nodes_and_times_that_there_are():
    names = {node.name for node in NODES}
    assert all(story.variables.get("node", "gpu-west-01") in names for story in STORIES)
    assert all(BEGIN <= story.begin < story.end <= END for story in STORIES)
    assert node_of("thermal") == "gpu-west-04"
    assert len({(story.dashboard, story.name) for story in STORIES}) == len(STORIES)
