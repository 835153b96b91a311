"""Profiles: a View under gpuwatch's own names, under those of dcgm-exporter, or under several at once.

Dashboards and rules written for dcgm-exporter go on working, while new ones use gpuwatch's names.
"""

from collections.abc import Iterable
from typing import get_args

from gpuwatch.config import MetricsConfig, Profile
from gpuwatch.metrics.dcgm.profile import dcgm_families
from gpuwatch.metrics.dcgm.windows import History
from gpuwatch.metrics.metric import Family
from gpuwatch.metrics.native import collect
from gpuwatch.metrics.native.rightsizing import Told
from gpuwatch.model.view import View

PROFILES: tuple[str, ...] = get_args(Profile)
"""Names of all profiles, in the order in which they share a page."""


class Profiles:
    """Turns Views into families. Not thread-safe. `node` is the host's name where a View has none."""

    def __init__(self, config: MetricsConfig, node: str) -> None:
        self._config, self._node = config, node
        self._history = History()

    def observe(self, view: View, now: float) -> None:
        """Take note of a View at monotonic `now`: rates and windows need the ones before."""
        self._history.observe(view, now)

    def collect(
        self, view: View, profiles: Iterable[str], *, owned_only: bool = False, advice: Told | None = None
    ) -> list[Family]:
        """The families of `profiles`, each name once. `owned_only`, `advice`: see `metrics.collect`."""
        families: dict[str, Family] = {}
        for profile in profiles:
            for family in self._of(view, profile, owned_only, advice):
                known = families.get(family.name)
                # what both DCGM profiles have, their labels tell apart
                families[family.name] = family._replace(samples=known.samples + family.samples) if known else family
        return list(families.values())

    def _of(self, view: View, profile: str, owned_only: bool, advice: Told | None) -> list[Family]:
        if profile == "native":
            return collect(view, self._config, owned_only=owned_only, advice=advice)
        return dcgm_families(view, profile, self._history, self._node, owned_only=owned_only)
