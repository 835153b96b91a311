"""What the tuner is measured against: an oracle that knows the curve, and rules that are in use."""

from gpuwatch.rules.energy_windows import Ladder
from tests.bench.tuner.curves import Curve


def oracle(curve: Curve, slowdown: float, floor: float) -> float:
    """The cap of least energy that keeps the bound, on a grid of 1 % of the top, not below `floor`."""
    return min(
        (
            cap
            for n in range(101)
            if (cap := curve.top * (1 - n / 100)) >= floor - 1e-6 and _keeps(curve, cap, slowdown)
        ),
        key=lambda cap: curve.at(cap)[1],
    )


def _keeps(curve: Curve, cap: float, slowdown: float) -> bool:
    return curve.at(cap)[0] >= 1 - slowdown - 1e-9


def fixed(curve: Curve, ladder: Ladder) -> float:
    """85 % of the clock, or 70 % of the power limit, whatever the work."""
    return max(ladder.floor, curve.top * (0.7 if curve.knob == "power_limit" else 0.85))
