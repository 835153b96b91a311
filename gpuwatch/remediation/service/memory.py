"""What a remediator remembers of its earlier processes: one document in the store, written whenever it changes.

The Node and the Leases have the rest. What a process that was killed had not written yet must be found again there.
"""

import logging

import msgspec
from msgspec.structs import replace

from gpuwatch.model.decoding import prepared
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.remediation.model import RemediatorMemory
from gpuwatch.remediation.service.slots import SlotReader
from gpuwatch.storage.audit import ActionStore

log = logging.getLogger(__name__)

DOCUMENT = "remediator"
"""Its name in the store."""


def load_memory(ledger: ActionStore) -> RemediatorMemory:
    """An unreadable memory counts as empty: the Node's own annotations hold most of it."""
    body = ledger.memory(DOCUMENT)
    try:
        return RemediatorMemory() if body is None else msgspec.json.decode(body, type=prepared(RemediatorMemory))
    except UNREADABLE as error:
        log.error("what was remembered cannot be read; %s; beginning without it", error)
        return RemediatorMemory()


class SavedMemory:
    """The memory of one remediator."""

    def __init__(self, ledger: ActionStore) -> None:
        self._ledger = ledger
        self._slot_recovered = False
        self.memory = load_memory(ledger)

    def save(self, memory: RemediatorMemory) -> None:
        """Remember this from now on."""
        if memory != self.memory:
            self.memory = memory
            self._ledger.remember(DOCUMENT, msgspec.json.encode(memory))

    def recover_slot(self, slots: SlotReader) -> None:
        """Once in a process: find the slot that an earlier one took and could not save; only its Lease records it.

        Raises:
            KubeError: the Leases cannot be read; to be tried again.
        """
        if self._slot_recovered:
            return
        name = slots.own()
        self._slot_recovered = True
        if name is not None:
            self.save(replace(self.memory, slot=name))
