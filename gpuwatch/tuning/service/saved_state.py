"""What an earlier tuner knew of owners, and what the next one will: read once, written when a hold begins and at the
end.
"""

import logging
from collections.abc import Collection, Mapping

import msgspec

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.tuning.energy.state import State
from gpuwatch.tuning.service.memory_file import TunerMemory

log = logging.getLogger(__name__)


class TunerPast:
    """Keeps one file. `saved`: by owner, as the cycle wants it."""

    def __init__(self, file: TunerMemory) -> None:
        self._file = file
        self.saved: Mapping[str, State] = dict(_read(file))
        self._kept: Mapping[str, State] = {}
        self._written: Mapping[str, float | None] = {}

    def keep(self, kept: Mapping[str, State], met: Collection[str]) -> None:
        """After each cycle. `met`: owners whose saved state is of no use any more."""
        left = {owner: state for owner, state in self.saved.items() if owner not in met}
        self._kept = {**left, **kept}
        if {owner: state.held for owner, state in self._kept.items()} != self._written:
            self.write()

    def write(self) -> None:
        """Now. What cannot be written is searched for again some day."""
        self._written = {owner: state.held for owner, state in self._kept.items()}
        try:
            self._file.write(self._kept)
        except GpuwatchError as error:
            log.warning("%s; a restarted tuner searches anew", error)


def _read(file: TunerMemory) -> list[tuple[str, State]]:
    found = []
    for owner, body in file.read().items():
        try:
            found.append((owner, msgspec.json.decode(body, type=State)))
        except msgspec.MsgspecError as error:
            log.warning("what is remembered of %s is of no use: %s", owner, error)
    return found
