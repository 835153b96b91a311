"""HTML and SVG whose text is escaped unless it is markup by type: what a pod is called never becomes a tag."""

from html import escape

VOID = frozenset({"meta", "br", "line", "rect", "circle"})
"""Elements without content."""


class Markup(str):
    """Text that is markup already; only `tag` and `joined` make it."""

    __slots__ = ()


def tag(name: str, /, *children: str | None, **attributes: str | float | None) -> Markup:
    """One element. `class_` is the attribute class, `stroke_width` stroke-width; what is None is left out."""
    given = "".join(
        f' {_attribute(key)}="{_safe(_number(value))}"' for key, value in attributes.items() if value is not None
    )
    if name in VOID and not children:
        return Markup(f"<{name}{given}/>")
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*children: str | None) -> Markup:
    """One after the other; plain text is escaped."""
    return Markup("".join(child if isinstance(child, Markup) else _safe(child) for child in children if child))


def _attribute(key: str) -> str:
    return key.rstrip("_").replace("_", "-") if key != "viewBox" else key


def _number(value: str | float) -> str:
    """Coordinates to a tenth of a pixel."""
    return value if isinstance(value, str) else f"{round(value, 1):g}"


def _safe(text: str) -> str:
    return escape(text.replace("\0", ""))
