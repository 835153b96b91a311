"""Label matchers that every query needs, in one place. A query writes `{@node, window="average"}`."""

import re

_CLUSTER = 'job="gpuwatch", cluster=~"$cluster"'
_NODE = f'{_CLUSTER}, node=~"$node"'
_PLACE = 'cluster=~"$cluster", node=~"$node"'

SELECTORS = {
    "job": 'job="gpuwatch"',
    "cluster": _CLUSTER,
    "node": _NODE,
    "gpu": f'{_NODE}, gpu=~"$gpu"',
    "workload": f'{_NODE}, namespace=~"$namespace", pod=~"$pod"',
    "remediator": f'job="gpuwatch-remediator", {_PLACE}',
    "tuner": f'job="gpuwatch-tuner", {_PLACE}',
    "any": f'job=~"gpuwatch|gpuwatch-remediator|gpuwatch-tuner", {_PLACE}',
}
"""`@job`, `@cluster`, `@node` and `@gpu`: the agent's series, narrower each time. `@workload`: those that name a pod.
`@remediator` and `@tuner`: theirs. `@any`: of whichever process of gpuwatch."""


def expand(expr: str) -> str:
    """The query with its selectors written out, on one line. KeyError: no such selector."""
    return re.sub(r"@([a-z]+)\b", lambda match: SELECTORS[match[1]], re.sub(r"\s+", " ", expr.strip()))
