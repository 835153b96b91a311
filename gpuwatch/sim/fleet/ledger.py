"""What is left of a remediator that was killed: its ledger, in which every record is as far as it got."""

from collections import deque
from collections.abc import Callable

import msgspec

from gpuwatch.model.event import ActionEvent

LAST = 12
"""Actions kept to tell the story of a violation."""


class Ledger:
    """Stands in for the store of one node. `checkpoint` is passed before and after each write."""

    def __init__(self, checkpoint: Callable[[], None]) -> None:
        self.actions: deque[ActionEvent] = deque(maxlen=LAST)
        self._checkpoint = checkpoint
        self._documents: dict[str, bytes] = {}
        self._number = 0

    def record(self, action: ActionEvent) -> int:
        """Keep an action and give its number."""
        self._checkpoint()
        number = action.number
        if number is None:
            self._number += 1
            number = self._number
        self.actions.append(msgspec.structs.replace(action, number=number))
        self._checkpoint()
        return number

    def memory(self, name: str) -> bytes | None:
        """A document, None where there is none."""
        return self._documents.get(name)

    def remember(self, name: str, body: bytes) -> None:
        """Keep a document."""
        self._checkpoint()
        self._documents[name] = body
        self._checkpoint()
