"""Mean and spread of what goes by, in three numbers that a checkpoint can hold."""

import math

import msgspec


class Moments(msgspec.Struct, omit_defaults=True):
    """Weighted mean and spread (Welford)."""

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float, weight: float) -> None:
        """Take one more."""
        if not (weight > 0 and math.isfinite(value)):
            return
        self.weight += weight
        step = value - self.mean
        self.mean += step * weight / self.weight
        self.squares += max(0.0, weight * step * (value - self.mean))  # rounding may say less than none

    @property
    def value(self) -> float | None:
        """The mean; None: of nothing."""
        return self.mean if self.weight > 0 else None

    @property
    def spread(self) -> float | None:
        """Standard deviation over mean."""
        return math.sqrt(self.squares / self.weight) / self.mean if self.weight > 0 and self.mean > 0 else None
