"""The tree that both forms of an nvidia-smi dump become: labels, values, children, all as printed."""

import re
from collections.abc import Iterator

from gpuwatch.sim.capture.nvidia_smi.values import NoValue, refuse_words


def normalised(label: str) -> str:
    """`Bank Remap (Max)` -> `bank_remap_max`; XML tags come out as they are, in lower case."""
    return re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")


class DumpNode:
    """One line of the text or one element of the XML; a label may occur several times under one parent."""

    def __init__(self, label: str, value: str | None = None) -> None:
        self.title = label.strip()
        self.label = normalised(label)
        self.value = value
        self.children: list[DumpNode] = []

    def named(self, *labels: str) -> Iterator["DumpNode"]:
        """Children with one of these labels, in order."""
        return (child for child in self.children if child.label in labels)

    def find(self, path: str) -> "DumpNode | None":
        """The first node at `a/b/c`; where the driver printed `b: N/A` instead of a section, that node."""
        node: DumpNode | None = self
        for label in path.split("/"):
            if node is None or (node.value and not node.children):
                return node
            node = next(node.named(label), None)
        return node

    def text(self, path: str) -> str:
        """The value printed at a path.

        Raises:
            NoValue: there is none, or nvidia-smi printed an error in its place.
        """
        node = self.find(path)
        if node is None:
            raise NoValue()
        label = path.rsplit("/", 1)[-1]
        value = refuse_words(node.value or "")
        if node.label != label:
            raise NoValue()
        return value
