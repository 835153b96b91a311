"""Numbers as the texts of advice write them: GiB, percents, and spans of time."""

from collections.abc import Collection

from gpuwatch.model.clock import utc

GIB = 2**30

_SPANS = ((86400, "day"), (3600, "hour"), (60, "minute"))


def gib(size: float) -> str:
    """Of bytes: `9.8 GiB`."""
    return f"{size / GIB:.1f} GiB"


def percent(ratio: float) -> str:
    """`12 %`; small ones have one digit more."""
    return f"{ratio * 100:.1f} %" if 0 < ratio < 0.0995 else f"{ratio * 100:.0f} %"


def span(seconds: float) -> str:
    """`45 minutes`, `3.5 hours`, `2 days`."""
    size, name = next((unit for unit in _SPANS if seconds >= 2 * unit[0]), _SPANS[-1])
    number = f"{seconds / size:.0f}" if size == 60 else f"{seconds / size:.1f}".removesuffix(".0")
    return f"{number} {name}{'' if number == '1' else 's'}"


def time(at: float) -> str:
    """`2026-03-01 12:30 UTC`."""
    return f"{utc(at):%Y-%m-%d %H:%M} UTC"


def some(names: Collection[str]) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(sorted(names)[:3])
    return f"{shown} and {len(names) - 3} more" if len(names) > 3 else shown
