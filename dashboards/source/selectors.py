"""Label matchers that every query needs, in one place. A query writes `{@node, window="average"}`."""

import re

_CLUSTER = 'cluster=~"$cluster"'
_NODE = f'{_CLUSTER}, node=~"$node"'

SELECTORS = {
    "all": "",
    "cluster": _CLUSTER,
    "node": _NODE,
    "gpu": f'{_NODE}, gpu=~"$gpu"',
    "pod": f'{_NODE}, namespace=~"$namespace", pod=~"$workload"',
    "workload": f'{_NODE}, kind=~"$kind", namespace=~"$namespace", name=~"$workload"',
}
"""Narrower each time. None names a job: metrics of gpuwatch have names of their own, and how a site calls its scrape
jobs is its affair. What every process has (`up`, `process_*`) is joined with those: `of_gpuwatch`."""

OF_AGENTS = f'node:gpuwatch_target:known{{{_NODE}, process="agent"}}'
"""Targets that were agents within a day: a recording rule."""
OF_GPUWATCH = f"gpuwatch_build_info{{{_NODE}}}"


def of_gpuwatch(vector: str, whose: str = OF_GPUWATCH) -> str:
    """Of series that other programs have as well, those of gpuwatch's targets."""
    return f"({vector} and on (cluster, job, instance) {whose})"


def expand(expr: str) -> str:
    """The query with its selectors written out, on one line. KeyError: no such selector."""
    return re.sub(r"@([a-z]+)\b", lambda match: SELECTORS[match[1]], re.sub(r"\s+", " ", expr.strip()))
