"""What waits to be written: bounded, in order, and readable all the while."""

import threading
from collections.abc import Sequence

from gpuwatch.model.event import EVENT_KINDS
from gpuwatch.storage.rows import Document, Row


class StoreQueue:
    """Rows and documents on their way to the disk; any thread may call. Of more than `bound` rows of a kind the oldest
    is lost.
    """

    def __init__(self, bound: int) -> None:
        self.lost = 0
        """Rows that went because there were too many."""
        self._bound = bound
        self._rows: dict[str, dict[str, Row]] = {kind: {} for kind in EVENT_KINDS}
        self._documents: dict[str, Document] = {}
        self._unwritten: set[str] = set()
        self._lock = threading.Lock()

    def add(self, row: Row) -> None:
        """Put a row at the end, or in the place of the one with its key."""
        with self._lock:
            waiting = self._rows[row.kind]
            waiting[row.key] = row
            if len(waiting) > self._bound:
                del waiting[next(iter(waiting))]
                self.lost += 1

    def save(self, document: Document) -> None:
        """Keep a document in place of the one before."""
        with self._lock:
            self._documents[document.name] = document
            self._unwritten.add(document.name)

    def rows(self, kinds: Sequence[str] = EVENT_KINDS, since: float = 0.0) -> list[Row]:
        """Rows that wait, of these kinds, from unix time `since` on."""
        with self._lock:
            return [row for kind in kinds for row in self._rows[kind].values() if row.at >= since]

    def documents(self, *, written: bool = False) -> list[Document]:
        """Documents that wait; with `written` all this process ever saved, which a new file needs again."""
        with self._lock:
            return [self._documents[name] for name in (self._documents if written else self._unwritten)]

    def document(self, name: str) -> tuple[Document | None, bool]:
        """What was saved last under a name, and whether it waits still."""
        with self._lock:
            return self._documents.get(name), name in self._unwritten

    def written(self, rows: list[Row], documents: list[Document]) -> None:
        """Forget rows that are on the disk by now; what was replaced meanwhile goes on waiting."""
        with self._lock:
            for row in rows:
                if self._rows[row.kind].get(row.key) is row:
                    del self._rows[row.kind][row.key]
            self._unwritten -= {each.name for each in documents if self._documents[each.name] is each}
