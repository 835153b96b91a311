"""Reads TOML of a host or of a bundle, which is not trusted, in bounded time.

tomllib's time and memory grow with the square of the length of a dotted key: 32 KB of `a.a.a...` take two seconds and
a GiB. So text that is longer than any configuration, or that joins more names by dots, is refused.
"""

import re
import tomllib
from typing import Any

MOST_CHARACTERS = 1 << 18
MOST_PARTS = 32

_LONG_KEY = re.compile(rf"""(?:\.[ \t]*+(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+){{{MOST_PARTS}}}""")


def toml_document(text: str) -> dict[str, Any]:
    """The document.

    Raises:
        ValueError: it is not TOML, too long, or too deep.
    """
    if len(text) > MOST_CHARACTERS or _LONG_KEY.search(text):
        raise ValueError(f"more than {MOST_CHARACTERS >> 10} KiB, or a key of more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("too deep") from None
