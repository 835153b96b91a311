"""Text from others, made safe to show.

Names of processes, pods and GPUs, kernel messages and answers of servers are chosen by others. On a terminal a control
character in them moves the cursor, retitles the window or hides what follows; a line break forges a line of a table or
a log; bidirectional and zero-width characters make a name look like another. `visible` shows each of these as the
escape that Python writes for it. It is applied at every edge: the console, the log, labels, pages, Kubernetes objects.
"""

import re
import shlex

_LINE_END = re.compile(r"(\r?\n)")


def visible(text: str) -> str:
    r"""One line of text: what Unicode calls unprintable (C0, C1, DEL, format, bidi, zero-width, line and paragraph
    separators, lone surrogates, unusual blanks) is shown as `\n`, `\x1b`, `\u202e`. A second time changes nothing.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def visible_lines(text: str) -> str:
    """Text that keeps its line ends (LF, CR LF), with each line made `visible`."""
    return "".join(part if number % 2 else visible(part) for number, part in enumerate(_LINE_END.split(text)))


def number(text: str | None) -> int | None:
    """A decimal number in a file or a label of others; None: it is none, or has more digits than 64 bits hold."""
    return int(text) if text and text.isascii() and text.isdecimal() and len(text) < 19 else None


def shell_word(text: str) -> str:
    """Text as one word of a command line that is shown for copying."""
    return shlex.quote(visible(text))


def json_text(encoded: bytes) -> str:
    r"""A JSON document with the same value whose unprintable characters are all `\uXXXX`."""
    text = encoded.decode()
    if all(line.isprintable() for line in text.split("\n")):
        return text
    parts: list[str] = []
    for each in text:
        if each.isprintable() or each == "\n":
            parts.append(each)
        else:
            units = each.encode("utf-16-be").hex()
            parts += [f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)]
    return "".join(parts)
