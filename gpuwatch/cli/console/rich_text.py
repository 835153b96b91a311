"""rich's Text, for screens that show text from other programs. Control characters in it show as escapes.

Every screen uses it instead of rich's own, so that no name can move the cursor, and a line stays one line.
"""

from collections.abc import Iterable
from typing import Any, cast

import rich.text
from rich.style import Style, StyleType

from gpuwatch.model.text import visible


class Text(rich.text.Text):
    """One line of a screen."""

    def __init__(self, text: str = "", *args: Any, **keywords: Any) -> None:
        super().__init__(visible(text), *args, **keywords)

    def append(self, text: rich.text.Text | str, style: str | Style | None = None) -> "Text":
        """Add text at the end."""
        super().append(visible(text) if isinstance(text, str) else text, style)
        return self

    @classmethod
    def assemble(cls, *parts: str | rich.text.Text | tuple[str, StyleType], **keywords: Any) -> "Text":
        """Text of several parts, each a text or a text and its style."""
        return cast(Text, super().assemble(*parts, **keywords))  # rich makes it by `cls`


def stacked(lines: Iterable[rich.text.Text]) -> rich.text.Text:
    """A screen of several lines."""
    return rich.text.Text("\n").join(lines)
