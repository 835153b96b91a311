"""Profiles: the same View under gpuwatch's own names or under those of dcgm-exporter, several at once."""

from collections.abc import Iterable
from typing import get_args

from gpuwatch.config import MetricsConfig, Profile
from gpuwatch.model.view import View
from gpuwatch.sinks.metric import Family
from gpuwatch.sinks.metrics import collect

PROFILES: tuple[str, ...] = get_args(Profile)


class Profiles:
    """Renders Views as families. Not thread-safe."""

    def __init__(self, config: MetricsConfig, node: str) -> None:
        self._config, self._node = config, node

    def observe(self, view: View) -> None:
        """Take note of a View: rates and windows need the ones before."""

    def collect(self, view: View, profiles: Iterable[str], *, owned_only: bool = False) -> list[Family]:
        """The families of `profiles`."""
        return collect(view, self._config, owned_only=owned_only)
