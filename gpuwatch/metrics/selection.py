"""Choosing families by name: patterns of the configuration (`metrics.families`) and of a scrape (`name[]`)."""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase

from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.metric import Family
from gpuwatch.model.text import visible

Selection = frozenset[str] | None
"""Names of the families that a scrape asks for; None: it does not choose."""

MAX_LENGTH = 128
"""Characters of one pattern."""

MOST_NAMES = 32
"""Most `name[]` of one request: each is compared with every family, on the thread that answers all clients."""

_PATTERN = re.compile(r"[A-Za-z_:*?][A-Za-z0-9_:*?]*", re.ASCII)


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether any pattern fits; `*` stands for any text, `?` for one character."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def select(patterns: Iterable[str], known: Collection[str], *, guess: bool = True) -> frozenset[str]:
    """The known names that patterns fit. `guess`: an error names the nearest known name, which costs 50 ms.

    Raises:
        ValueError: a pattern is malformed, or fits no family.
    """
    found: set[str] = set()
    for pattern in dict.fromkeys(patterns):
        if len(pattern) > MAX_LENGTH or not _PATTERN.fullmatch(pattern):
            raise ValueError(f"{visible(pattern[:MAX_LENGTH])!r} is no name of a family; use letters, digits, _ : * ?")
        fitting = {name for name in known if fnmatchcase(name, pattern)}
        if not fitting:
            near = difflib.get_close_matches(pattern, known, n=1, cutoff=0.5) if guess else ()
            hint = f"did you mean {near[0]}?" if near else "`gpuwatch metrics list` has them all"
            raise ValueError(f"no family fits {pattern}; {hint}")
        found |= fitting
    return frozenset(found)


def requested(query: Mapping[str, tuple[str, ...]], known: Collection[str]) -> Selection:
    """The families that a scrape names with `name[]`, as for other exporters. Raises ValueError as `select` does."""
    wanted = query.get("name[]")
    if wanted is not None and len(wanted) > MOST_NAMES:
        raise ValueError(f"{len(wanted)} name[] are more than {MOST_NAMES}; use patterns such as gpuwatch_gpu_power_*")
    return None if wanted is None else select(wanted, known, guess=False)


def chosen(families: Sequence[Family], query: Mapping[str, tuple[str, ...]]) -> Sequence[Family]:
    """Those of these families that a scrape names. Raises ValueError as `select` does."""
    only = requested(query, [family.name for family in families])
    return families if only is None else [family for family in families if family.name in only]


def wrong_pattern(config: MetricsConfig, known: Collection[str]) -> tuple[str, str] | None:
    """The key of the first pattern of `metrics.families` that fits no family, and why; None: all do."""
    for key in ("allow", "deny"):
        for number, pattern in enumerate(getattr(config.families, key)):
            try:
                select((pattern,), known)
            except ValueError as error:
                return f"metrics.families.{key}[{number}]", str(error)
    return None
