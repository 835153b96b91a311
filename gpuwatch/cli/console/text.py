"""`Text`: a line of a screen. rich is loaded when the first one is made: documents and errors do not need it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gpuwatch.cli.console.rich_text import Text
else:

    class Text:
        """Makes a `rich_text.Text`."""

        def __new__(cls, *args: Any, **keywords: Any) -> Any:
            """A `rich_text.Text` of these arguments."""
            from gpuwatch.cli.console.rich_text import Text

            return Text(*args, **keywords)

        @staticmethod
        def assemble(*parts: Any, **keywords: Any) -> Any:
            """Text of several parts, each a text or a text and its style."""
            from gpuwatch.cli.console.rich_text import Text

            return Text.assemble(*parts, **keywords)


__all__ = ["Text"]
