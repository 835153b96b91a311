"""The variables on top of the dashboards. All of them are the same everywhere, so that links can hand them on.

`cluster` may be missing as a label: its All is `.*`, which matches series without it as well.
"""

from typing import Literal

import msgspec

from dashboards.source.selectors import expand


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """`query` is Grafana's `label_values(...)`, for a data source its type, for a text box what it holds at first."""

    name: str
    label: str
    query: str
    kind: Literal["datasource", "query", "textbox"] = "query"
    many: bool = True


def _labels(name: str, label: str, series: str, *, many: bool = True) -> Variable:
    return Variable(name=name, label=label, query=expand(f"label_values({series}, {name})"), many=many)


DATASOURCE = Variable(name="datasource", label="Data source", query="prometheus", kind="datasource")
CLUSTER = _labels("cluster", "Cluster", "gpuwatch_build_info")
NODE = _labels("node", "Node", "gpuwatch_build_info{@cluster}")
ONE_NODE = _labels("node", "Node", "gpuwatch_build_info{@cluster}", many=False)
"""For a dashboard about one node."""
GPU = _labels("gpu", "GPU", "gpuwatch_gpu_info{@node}")
_HELD = "workload:gpuwatch_workload_info:holder"
KIND = _labels("kind", "Kind", f"{_HELD}{{@node}}")
NAMESPACE = _labels("namespace", "Namespace", f'{_HELD}{{@node, kind=~"$kind"}}')
WORKLOAD = Variable(
    name="workload",
    label="Workload",
    query=expand(f'label_values({_HELD}{{@node, kind=~"$kind", namespace=~"$namespace"}}, name)'),
)
KWH = Variable(name="kwh", label="Price of a kWh ($)", query="0.15", kind="textbox")
PRICE = Variable(name="price", label="Price of a GPU hour ($)", query="2.5", kind="textbox")
