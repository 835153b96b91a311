"""Columns that several tables have."""

from dashboards.source.panel import Column, Thresholds

PLAIN: Thresholds = ((None, "blue"),)


def share(field: str, title: str, thresholds: Thresholds = PLAIN, *, width: int = 130) -> Column:
    """A bar from nothing to all."""
    return Column(
        field=field,
        title=title,
        unit="percentunit",
        decimals=0,
        thresholds=thresholds,
        color="gauge",
        min=0,
        max=1,
        width=width,
    )
