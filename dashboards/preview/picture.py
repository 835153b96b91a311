"""A dashboard with all of its queries answered: what the page draws."""

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from dashboards.history.fleet import STEP
from dashboards.preview.stories import Story
from dashboards.preview.variables import Chosen, choose, fill
from gpuwatch.sim.node.scenario import seconds

Json = dict[str, Any]


class Source:
    """The Prometheus of a picture."""

    def __init__(self, url: str, story: Story) -> None:
        self._url, self._story = url, story

    def instant(self, query: str) -> list[Json]:
        """What `query` gives at the end of the story."""
        return self._ask("query", query=query, time=self._story.end)

    def range(self, query: str, step: float = STEP) -> list[Json]:
        """What it gives at each step, at round times."""
        begin, end = (at // step * step for at in (self._story.begin, self._story.end))
        return self._ask("query_range", query=query, start=begin, end=end, step=step)

    def _ask(self, kind: str, **parameters: object) -> list[Json]:
        body = urllib.parse.urlencode(parameters).encode()
        try:
            with urllib.request.urlopen(f"{self._url}/api/v1/{kind}", data=body, timeout=60) as answer:  # noqa: S310  # our own
                found: list[Json] = json.load(answer)["data"]["result"]
                return found
        except urllib.error.HTTPError as refused:
            why = json.load(refused).get("error")
            raise RuntimeError(f"{why} in {parameters['query']}") from None


def picture(dashboard: Json, story: Story, url: str) -> tuple[Json, list[str]]:
    """What is to be drawn, and the titles of panels without data that should have some."""
    source, chosen = Source(url, story), choose(dashboard, story)
    answered = (_answered(panel, source, chosen, story) for panel in opened(dashboard["panels"]))
    panels = compacted(_worth_showing(dashboard["panels"], list(answered)))
    shown = [{"label": each.label, "value": each.shown} for each in chosen.values()]
    marks = [mark for each in dashboard["annotations"]["list"] for mark in _marks(each, source, chosen, story)]
    drawn: Json = {
        "title": dashboard["title"],
        "variables": shown,
        "from": story.begin * 1000,
        "to": story.end * 1000,
        "panels": panels,
        "marks": marks,
    }
    return drawn, [panel["title"] for panel in panels if _lacks_data(panel)]


def opened(panels: Iterable[Json]) -> list[Json]:
    """All panels as they lie when every folded row is unfolded."""
    found: list[Json] = []
    down = 0
    for panel in panels:
        inside = panel.get("panels") or []
        found.append(_moved(panel, down))
        if inside:
            top = min(each["gridPos"]["y"] for each in inside)
            found += [_moved(each, found[-1]["gridPos"]["y"] + 1 - top) for each in inside]
            down += max(_bottom(each) for each in inside) - top
    return found


def compacted(panels: Iterable[Json]) -> list[Json]:
    """As Grafana's grid lays panels: each as high up as there is room for it."""
    found: list[Json] = []
    for panel in sorted(panels, key=lambda each: (each["gridPos"]["y"], each["gridPos"]["x"])):
        top = max((_bottom(each) for each in found if _beside(each, panel)), default=0)
        found.append(_moved(panel, top - panel["gridPos"]["y"]))
    return found


def _beside(one: Json, other: Json) -> bool:
    """Whether they share a column."""
    a, b = one["gridPos"], other["gridPos"]
    return bool(a["x"] < b["x"] + b["w"] and b["x"] < a["x"] + a["w"])


def rows(panels: Iterable[Json]) -> int:
    """Height of the grid."""
    return max(_bottom(panel) for panel in panels)


def _bottom(panel: Json) -> int:
    place = panel["gridPos"]
    return int(place["y"] + place["h"])


def _moved(panel: Json, down: int) -> Json:
    place = panel["gridPos"]
    return {**panel, "gridPos": {**place, "y": place["y"] + down}}


def _answered(panel: Json, source: Source, chosen: Mapping[str, Chosen], story: Story) -> Json:
    targets = []
    step = max(STEP, seconds(panel.get("interval") or "") or 0.0)
    for target in panel.get("targets", []):
        query = fill(target["expr"], chosen, story, step)
        result = source.instant(query) if target.get("instant") else source.range(query, step)
        targets.append({**target, "step": step, "result": result})
    return {
        "options": {},
        "transformations": [],
        "fieldConfig": {"defaults": {}, "overrides": []},
        **{key: value for key, value in panel.items() if key != "panels"},
        "title": fill(panel.get("title", ""), chosen, story),
        "targets": targets,
    }


def _worth_showing(panels: Iterable[Json], answered: Iterable[Json]) -> Iterator[Json]:
    """All but what is in a folded row none of whose panels has anything to show: that row stays folded."""
    row_of = {each["id"]: panel["id"] for panel in panels for each in panel.get("panels") or []}
    telling = {row_of.get(panel["id"]) for panel in answered if _has_data(panel)}
    silent = set(row_of.values()) - telling
    for panel in answered:
        if panel["id"] in silent:
            yield {**panel, "folded": True}
        elif row_of.get(panel["id"]) not in silent:
            yield panel


def _lacks_data(panel: Json) -> bool:
    """A panel that says what it means when it is empty may be empty."""
    if panel["type"] in ("row", "text") or "noValue" in panel["fieldConfig"]["defaults"]:
        return False
    return not _has_data(panel)


def _has_data(panel: Json) -> bool:
    numbers = (float(value) for target in panel["targets"] for each in target["result"] for value in _values(each))
    return not all(math.isnan(number) for number in numbers)


def _values(series: Json) -> Iterator[str]:
    yield from (value for _, value in series.get("values") or [series["value"]])


def _marks(annotation: Json, source: Source, chosen: Mapping[str, Chosen], story: Story) -> Iterator[Json]:
    """Where an annotation has something to say, each moment once."""
    if not annotation.get("enable") or not annotation.get("expr"):
        return
    seen: set[float] = set()
    for series in source.range(fill(annotation["expr"], chosen, story)):
        last = -math.inf
        for at, value in series["values"]:
            begins = at - last > STEP
            last = at
            if annotation.get("useValueForTime") in (True, "on"):
                seen.add(float(value) / 1000)
            elif begins and float(value):
                seen.add(at)
    for at in sorted(seen):
        if story.begin <= at <= story.end:
            yield {"time": at * 1000, "color": annotation.get("iconColor", "blue")}
