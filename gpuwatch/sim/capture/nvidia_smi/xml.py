"""`nvidia-smi -q -x` to the same tree as the text."""

from xml.parsers import expat

from gpuwatch.sim.capture.nvidia_smi.node import DumpNode

MAX_DEPTH = 64


class BadXml(Exception):
    """The document is not well-formed or too deep."""


def parse_xml(document: str) -> DumpNode:
    """The root element as a tree; a `gpu` element's value is its PCI address.

    Raises:
        BadXml: see there.
    """
    root = DumpNode("log")
    stack = [root]

    def start(tag: str, attributes: dict[str, str]) -> None:
        if len(stack) > MAX_DEPTH:
            raise BadXml("elements are nested too deep")
        node = DumpNode(tag, attributes.get("id", ""))
        stack[-1].children.append(node)
        stack.append(node)

    def end(_: str) -> None:
        node = stack.pop()
        node.value = (node.value or "").strip() or None

    def characters(data: str) -> None:
        node = stack[-1]
        node.value = (node.value or "") + data

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = characters
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise BadXml(str(error)) from None
    return next(root.named("nvidia_smi_log"), root)
