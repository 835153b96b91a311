"""How long to leave an API server alone that does not, or does not want to, answer."""

import random

FIRST_SECONDS = 0.5
LONGEST_SECONDS = 60.0


class Backoff:
    """Doubles with each failure in a row; `chance` spreads a fleet that failed at the same moment."""

    def __init__(self, chance: random.Random) -> None:
        self._chance, self._failures = chance, 0

    def failed(self, retry_after: float | None = None) -> float:
        """Seconds to wait now; never less than the server asked for."""
        wait = min(FIRST_SECONDS * 2.0**self._failures, LONGEST_SECONDS)
        self._failures = min(self._failures + 1, 16)
        return (retry_after or 0.0) + wait * self._chance.uniform(0.5, 1.0)

    def succeeded(self) -> None:
        """Begin anew with the next failure."""
        self._failures = 0
