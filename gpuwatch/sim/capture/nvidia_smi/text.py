"""`nvidia-smi -q` text to a tree: indentation is structure, and it differs between driver generations."""

import re

from gpuwatch.sim.capture.nvidia_smi.node import DumpNode

GPU_HEADER = re.compile(r"GPU\s+([0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+(?:\.[0-9A-Fa-f])?|\[?N/A\]?)\s*:?")
LOST_LINE = re.compile(
    r"Unable to determine the device handle for GPU\s*(?:[0-9]+:\s+)?"
    r"([0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+(?:\.[0-9A-Fa-f])?)\s*:\s*(.*)"
)
"""What nvidia-smi says instead of a GPU's block when the GPU does not answer."""

NO_HANDLE = "no_handle"
"""Label of the child that says why such a GPU has no handle."""

MAX_DEPTH = 64


def parse_text(block: str) -> DumpNode:
    """The tree of one -q block: general facts and one `gpu` node per GPU, whose value is its PCI address."""
    root = DumpNode("log")
    stack: list[tuple[int, DumpNode]] = [(-1, root)]
    for raw in block.splitlines():
        line = raw.expandtabs(8)
        if not line.strip() or line.lstrip().startswith(("=", "#")):
            continue
        indent = len(line) - len(line.lstrip())
        node = _node(line.strip())
        while stack[-1][0] >= indent or len(stack) > MAX_DEPTH:
            stack.pop()
        stack[-1][1].children.append(node)
        stack.append((indent, node))
    return root


def _node(line: str) -> DumpNode:
    lost = LOST_LINE.search(line)
    if lost:
        node = DumpNode("gpu", lost[1])
        node.children.append(DumpNode(NO_HANDLE, lost[2]))
        return node
    header = GPU_HEADER.fullmatch(line)
    if header:
        return DumpNode("gpu", header[1])
    label, colon, value = (line + " ").partition(" : ")
    return DumpNode(label, value.strip() if colon else None)
