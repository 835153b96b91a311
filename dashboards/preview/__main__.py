"""`python -m dashboards.preview [DASHBOARD...]`: draw the dashboards' stories, or any dashboard of any node."""

import argparse
import json
import sys
from pathlib import Path

from dashboards.history.blocks import get
from dashboards.history.fleet import NODES
from dashboards.history.server import prometheus
from dashboards.preview.camera import shoot
from dashboards.preview.picture import picture, rows
from dashboards.preview.site import served
from dashboards.preview.stories import STORIES, Story, node_of, of_node

FOLDER = Path(__file__).parents[1]
IMAGES = FOLDER.parent / "docs" / "images" / "dashboards"


def main() -> int:
    """Draw; 1 where a panel has no data though it should, or could not be drawn."""
    wanted = _wanted()
    troubles = 0
    with prometheus(get()) as url:
        for story in wanted:
            troubles += _draw(story, url)
    return 1 if troubles else 0


def _wanted() -> list[Story]:
    parser = argparse.ArgumentParser(prog="python -m dashboards.preview", description=__doc__)
    parser.add_argument("dashboard", nargs="*", help="fleet, node, workload, operations; default: all that are there")
    parser.add_argument("--node", choices=[node.name for node in NODES], help="draw this node, not the stories")
    parser.add_argument("--scenario", choices=sorted({node.scenario for node in NODES}), help="the node that lives it")
    parser.add_argument("--story", help="only the stories of this name")
    given = parser.parse_args()
    there = {file.stem for file in FOLDER.glob("*.json")}
    if unknown := set(given.dashboard) - there:
        parser.error(f"no dashboard {', '.join(sorted(unknown))}; there are {', '.join(sorted(there))}")
    names = given.dashboard or sorted(there)
    if node := given.node or (given.scenario and node_of(given.scenario)):
        return [of_node(name, node) for name in names]
    return [story for story in STORIES if story.dashboard in names and given.story in (None, story.name)]


def _draw(story: Story, url: str) -> int:
    """How many panels failed."""
    name, file = f"{story.dashboard}-{story.name}", IMAGES / f"{story.dashboard}-{story.name}.png"
    dashboard = json.loads((FOLDER / f"{story.dashboard}.json").read_text())
    drawn, empty = picture(dashboard, story, url)
    with served(json.dumps(drawn).encode()) as site:
        shoot(site.url, rows(drawn["panels"]), file)
        failed = ["the page was not drawn in time"] if site.failures is None else site.failures
    print(f"{file} {file.stat().st_size // 1024} KiB", flush=True)
    for trouble in [*(f"no data in panel {title!r}" for title in empty), *failed]:
        print(f"{name}: {trouble}", file=sys.stderr)
    return len(empty) + len(failed)


if __name__ == "__main__":
    sys.exit(main())
