"""One remediator's way to the API server: real requests over the connections that the fleet shares, counted.

At each end of a request, and of a write to its ledger, a remediator may be killed.
"""

import random
from collections.abc import Callable, Mapping

import msgspec

from gpuwatch.kube.errors import AlreadyExists, ApiCall, Conflict, KubeError, TooMany, Unavailable
from gpuwatch.kube.transport import JSON, Transport


class Killed(BaseException):
    """The remediator ends here, as by SIGKILL: nothing of it may catch this."""


class Mortality:
    """When remediators are killed; shared by a fleet. `rate`: the chance at each point at which one can be."""

    def __init__(self, seed: int) -> None:
        self.rate = 0.0
        self._chance = random.Random(f"kills {seed}")  # noqa: S311

    def pass_by(self) -> None:
        """Go on, or not. Raises Killed."""
        if self.rate and self._chance.random() < self.rate:
            raise Killed


class Tally(msgspec.Struct):
    """What one remediator asked of the API server. `failures`: 429, 5xx and answers that never came. `retries`:
    requests made again after one.
    """

    reads: int = 0
    writes: int = 0
    conflicts: int = 0
    failures: int = 0
    retries: int = 0

    def __add__(self, other: "Tally") -> "Tally":
        """Member by member."""
        return self._with(other, 1)

    def __sub__(self, other: "Tally") -> "Tally":
        """Member by member."""
        return self._with(other, -1)

    def _with(self, other: "Tally", sign: int) -> "Tally":
        return Tally(*(getattr(self, name) + sign * getattr(other, name) for name in self.__struct_fields__))


class Line(Transport):
    """The requests of one node. `gate`, where it is set, is passed before each: it may make it wait."""

    def __init__(self, shared: Transport, checkpoint: Callable[[], None]) -> None:
        super().__init__()
        self.tally = Tally()
        self.gate: Callable[[ApiCall], None] | None = None
        self._shared, self._checkpoint = shared, checkpoint
        self._failed: set[tuple[str, str]] = set()

    def request(
        self,
        call: ApiCall,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        body: object = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """As Transport's. Raises Killed before it is sent, or after it was answered."""
        if self.gate is not None:
            self.gate(call)
        self._checkpoint()
        self._count(call, path)
        try:
            answer = self._shared.request(call, path, query=query, body=body, content_type=content_type, accept=accept)
        except KubeError as error:
            self._went_wrong(error, path)
            self._checkpoint()
            raise
        self._checkpoint()
        return answer

    def _count(self, call: ApiCall, path: str) -> None:
        if call.verb in ("get", "list"):
            self.tally.reads += 1
        else:
            self.tally.writes += 1
        if (call.verb, path) in self._failed:
            self._failed.discard((call.verb, path))
            self.tally.retries += 1

    def _went_wrong(self, error: KubeError, path: str) -> None:
        match error:
            case Conflict() | AlreadyExists():
                self.tally.conflicts += 1
            case TooMany() | Unavailable():
                self.tally.failures += 1
                self._failed.add((error.call.verb, path))
