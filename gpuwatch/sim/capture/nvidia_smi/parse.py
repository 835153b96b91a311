"""Parses what nvidia-smi prints: `-q` in both forms to one tree of labels, values and children, all as printed, and the
lines of other commands in the same file: -L, nvlink -s, --version.

In `-q` text, indentation is structure, and it differs between driver generations; `-q -x` prints XML.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple
from xml.parsers import expat

from gpuwatch.sim.capture.nvidia_smi.values import NoValue, refuse_words


class DumpNode:
    """One line of the text or one element of the XML; a label may occur several times under one parent."""

    def __init__(self, label: str, value: str | None = None) -> None:
        self.title = label.strip()
        # `Bank Remap (Max)` -> `bank_remap_max`; XML tags come out as they are, in lower case
        self.label = re.sub(r"[^a-z0-9]+", "_", label.lower()).strip("_")
        self.value = value
        self.children: list[DumpNode] = []

    def named(self, *labels: str) -> Iterator["DumpNode"]:
        """Children with one of these labels, in order."""
        return (child for child in self.children if child.label in labels)

    def find(self, path: str) -> "DumpNode | None":
        """The first node at `a/b/c`; where nvidia-smi printed `b: N/A` instead of a section, the node `b`."""
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


GPU_HEADER = re.compile(r"GPU\s+([0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+(?:\.[0-9A-Fa-f])?|\[?N/A\]?)\s*:?")
LOST_LINE = re.compile(
    r"Unable to determine the device handle for GPU\s*(?:[0-9]+:\s+)?"
    r"([0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+(?:\.[0-9A-Fa-f])?)\s*:\s*(.*)"
)
"""The lines that nvidia-smi prints instead of a GPU's block when the GPU does not answer."""

NO_HANDLE = "no_handle"
"""Label of the child that holds the reason why such a GPU has no handle."""

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
        content = line.strip()
        if lost := LOST_LINE.search(content):
            node = DumpNode("gpu", lost[1])
            node.children.append(DumpNode(NO_HANDLE, lost[2]))
        elif header := GPU_HEADER.fullmatch(content):
            node = DumpNode("gpu", header[1])
        else:
            label, colon, value = (content + " ").partition(" : ")
            node = DumpNode(label, value.strip() if colon else None)
        while stack[-1][0] >= indent or len(stack) > MAX_DEPTH:
            stack.pop()
        stack[-1][1].children.append(node)
        stack.append((indent, node))
    return root


class BadXml(Exception):
    """The document is not well-formed or too deep."""


def parse_xml(document: str) -> DumpNode:
    """The root element as a tree; a `gpu` element's value is its PCI address.

    Raises:
        BadXml: the document is not well-formed or too deep.
    """
    root = DumpNode("log")
    stack, texts = [root], [[""]]  # the text of each open element in pieces: each child cuts it

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > MAX_DEPTH:
            raise BadXml("elements are nested too deep")
        node = DumpNode(tag)
        stack[-1].children.append(node)
        stack.append(node)
        texts.append([attributes.get("id", "")])

    def end(_: str) -> None:
        stack.pop().value = "".join(texts.pop()).strip() or None

    def characters(data: str) -> None:
        texts[-1].append(data)

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = characters
    parser.buffer_text, parser.buffer_size = True, 1 << 16  # else a call for each line
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise BadXml(str(error)) from None
    return next(root.named("nvidia_smi_log"), root)


GPU_LINE = re.compile(r"^GPU (\d+): (.*?) \(UUID: ([^)]*)\)\s*$")
MIG_LINE = re.compile(r"^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: ([^)]*)\)\s*$")
LINK_LINE = re.compile(r"^\s*Link (\d+): (?:(\d+(?:\.\d+)?) GB/s|<?inactive>?)\s*$", re.IGNORECASE)
NVML_LINE = re.compile(r"^NVML version\s*: (\S+)\s*$", re.IGNORECASE)
MAX_LINKS = 72
LONGEST_LINE = 512
"""Characters of a line about GPUs: the time of a pattern may grow with the square of the length."""


class MigListing(NamedTuple):
    """A line of `nvidia-smi -L`: profile and uuid of a MIG device."""

    profile: str
    uuid: str


class OtherOutputs(NamedTuple):
    """`migs` by (gpu, MIG index); `links` by gpu: GB/s per link, None for an inactive one."""

    migs: dict[tuple[int, int], MigListing]
    links: dict[int, dict[int, float | None]]
    nvml: str | None


def read_other_outputs(file: str) -> OtherOutputs:
    """Facts of the whole file."""
    migs: dict[tuple[int, int], MigListing] = {}
    links: dict[int, dict[int, float | None]] = {}
    nvml, gpu = None, None
    for line in file.splitlines():
        if len(line) > LONGEST_LINE:
            continue
        if match := GPU_LINE.match(line):
            gpu = int(match[1])
        elif match := NVML_LINE.match(line):
            nvml = match[1]
        elif gpu is None:
            continue
        elif match := MIG_LINE.match(line):
            migs[gpu, int(match[2])] = MigListing(match[1], match[3])
        elif match := LINK_LINE.match(line):
            if int(match[1]) < MAX_LINKS:
                links.setdefault(gpu, {})[int(match[1])] = float(match[2]) if match[2] else None
        elif line[:1] not in (" ", "\t"):
            gpu = None
    return OtherOutputs(migs, links, nvml)
