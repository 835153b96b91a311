"""A plan's changes as items: what a Node holds of others costs no more than to read it."""

import time

from gpuwatch.cli.node.items import changes
from gpuwatch.kube.objects import TAINT, NodeObject, Taint
from gpuwatch.remediation.model import PatchNode

FOREIGN = tuple(Taint(key=f"others/{number}") for number in range(15_000))
"""About as many as an API server keeps of one Node. To compare each with each takes five CPU seconds."""


def test_taints_of_others_cost_no_square_of_their_number() -> None:
    node = NodeObject(name="a", uid="u", resource_version="1", taints=FOREIGN)
    began = time.process_time()
    (change,) = changes(node, [PatchNode(step="taint", taints=(*FOREIGN, Taint(key=TAINT)))])
    assert time.process_time() - began < 1
    assert change.message.partition("; ")[2] == f"taint {TAINT}:NoSchedule added"
