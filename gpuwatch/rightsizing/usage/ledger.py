"""All that is known of what workloads do with the GPUs they hold: a book for each, in bounded memory.

Windows come in order of time; those seen before are dropped, so that a source may repeat itself after a restart. One
thread at a time may use it.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.snapshot import Record
from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.mig_profiles import Profile
from gpuwatch.rightsizing.model.usage import NamespaceUse, Summary, Window
from gpuwatch.rightsizing.usage.allocation import activity
from gpuwatch.rightsizing.usage.namespace import BIN, BINS_A_DAY, DAY, MAX_DAYS, NamespaceBook, NamespaceState
from gpuwatch.rightsizing.usage.workload_stats import Book, BookState
from gpuwatch.workloads.workload_key import work_class

SET_BACK_SECONDS = 3600.0
"""Windows from so far ahead of now are of a clock that has been set back."""

MANY_NODES = 64
"""So many are remembered before those that went are looked for."""

LONGEST_SECONDS = 7.0 * DAY
LATEST = 1e11
"""A window that is longer, or is later than unix time can be, is none."""

Profiles = Callable[[str | None, int | None], tuple[Profile, ...]]
"""Into what a GPU can be cut, by its model and the bytes of its memory."""


class NodeState(Record, frozen=True, kw_only=True):
    """When windows of a node began: the newest, and those before."""

    at: float
    before: float


class LedgerState(Record, frozen=True, kw_only=True):
    """A Ledger at rest. `at`: the end of its newest window. `seen`: bins of five minutes by day."""

    since: float | None = None
    at: float | None = None
    books: tuple[BookState, ...] = ()
    namespaces: tuple[NamespaceState, ...] = ()
    nodes: dict[str, NodeState] = {}
    seen: dict[int, int] = {}
    bins_until: int = 0


class Ledger:
    """Books by workload, the one that was written to last at the end."""

    def __init__(self, config: RightsizingConfig, profiles: Profiles = mig_profiles.of) -> None:
        """An empty one."""
        self.since: float | None = None
        """Unix seconds of the first window; None: there was none."""
        self.at: float | None = None
        """End of the newest window."""
        self.turned_away = 0
        """Windows of workloads for which there was no room, for all that have a book are there."""
        self._config, self._profiles = config, profiles
        self._books: OrderedDict[WorkloadKey, Book] = OrderedDict()
        self._namespaces: dict[tuple[str, str], NamespaceBook] = {}
        self._nodes: dict[str, tuple[float, float]] = {}
        self._many_nodes = MANY_NODES
        self._seen: dict[int, int] = {}
        self._bins_until = 0

    @classmethod
    def restored(cls, state: LedgerState, config: RightsizingConfig, profiles: Profiles = mig_profiles.of) -> "Ledger":
        """Go on from `state`; what is more than `config` allows is forgotten."""
        ledger = cls(config, profiles)
        ledger.since, ledger.at = state.since, state.at
        ledger._books = OrderedDict((book.key, Book(book)) for book in state.books)
        ledger._namespaces = {(each.namespace, each.resource): NamespaceBook(each) for each in state.namespaces}
        ledger._nodes = {name: (node.at, node.before) for name, node in state.nodes.items()}
        ledger._seen, ledger._bins_until = dict(state.seen), state.bins_until
        ledger.configure(config)
        return ledger

    def __len__(self) -> int:
        """Workloads that have a book."""
        return len(self._books)

    def configure(self, config: RightsizingConfig) -> None:
        """Go by other settings from now on."""
        self._config = config
        while len(self._books) > config.max_workloads:
            self._books.popitem(last=False)
        for book in self._books.values():
            book.settle(work_class(book.key, book.said, config.work_classes))

    def add(self, window: Window) -> bool:
        """Take one more. False: it was seen before, there is no room for its workload, or it is of no length."""
        if not (0 < window.span < LONGEST_SECONDS and window.covered >= 0 and 0 <= window.at < LATEST):
            return False
        watched = self._look_at_node(window)
        book = self._books.get(window.key) or self._begin(window)
        if book is None:
            self.turned_away += 1
            return False
        is_work = activity(window)
        total = None if window.device else window.memory_total
        said = book.said
        if not book.add(window, self._profiles(window.model, total), is_work, watched):
            return False
        self._books.move_to_end(window.key)
        if book.said != said:
            book.settle(work_class(book.key, book.said, self._config.work_classes))
        self.since = window.at if self.since is None else min(self.since, window.at)
        self.at = window.at + window.span if self.at is None else max(self.at, window.at + window.span)
        self._count_bins(window)
        if window.key.namespace:
            self._namespace(window).add(window, is_work)
        return True

    def summaries(self, now: float) -> Iterator[Summary]:
        """Of each workload, at unix time `now`."""
        self._notice_clock(now)
        rules = self._config.work_classes
        return (book.summary(now, work_class(book.key, book.said, rules)) for book in self._books.values())

    def namespaces(self, now: float) -> tuple[NamespaceUse, ...]:
        """Of each namespace and resource, at unix time `now`."""
        self._notice_clock(now)
        complete = dict(self._seen)
        for number in range(int(now // BIN), self._bins_until):
            complete[number // BINS_A_DAY] = complete.get(number // BINS_A_DAY, 1) - 1
        return tuple(each.use(now, complete) for each in self._namespaces.values())

    def state(self) -> LedgerState:
        """To be saved before the next window is added."""
        return LedgerState(
            since=self.since,
            at=self.at,
            books=tuple(book.state() for book in self._books.values()),
            namespaces=tuple(each.state() for each in self._namespaces.values()),
            nodes={name: NodeState(at=at, before=before) for name, (at, before) in self._nodes.items()},
            seen=dict(self._seen),
            bins_until=self._bins_until,
        )

    def _begin(self, window: Window) -> Book | None:
        """A book for a new workload. None: all that have one are still there."""
        if len(self._books) >= self._config.max_workloads:
            longest_gone = next(iter(self._books.values()), None)
            if longest_gone is None or longest_gone.is_present(window.at):
                return None
            del self._books[longest_gone.key]
        book = self._books[window.key] = Book.begun(window)
        book.settle(work_class(window.key, window.said, self._config.work_classes))
        return book

    def _look_at_node(self, window: Window) -> float:
        """When the node's windows before this one began; 0: it is new."""
        known = self._nodes.get(window.node)
        if known is None:
            self._nodes[window.node] = window.at, 0.0
            if len(self._nodes) > self._many_nodes:
                self._nodes = {name: times for name, times in self._nodes.items() if times[0] > window.at - DAY}
                self._many_nodes = max(MANY_NODES, 2 * len(self._nodes))
            return 0.0
        newest, before = known
        if window.at > newest:
            before = newest
            self._nodes[window.node] = window.at, before
        return before

    def _namespace(self, window: Window) -> NamespaceBook:
        resource = window.resource
        if resource is None:
            resource = f"nvidia.com/mig-{window.profile.replace('+', '.')}" if window.profile else "nvidia.com/gpu"
        key = window.key.namespace, resource
        found = self._namespaces.get(key)
        if found is None:
            self._namespaces = {name: each for name, each in self._namespaces.items() if not each.is_over(window.at)}
            state = NamespaceState(namespace=key[0], resource=resource, first=window.at, last=window.at)
            found = self._namespaces[key] = NamespaceBook(state)
        return found

    def _count_bins(self, window: Window) -> None:
        """Bins in which anybody was seen."""
        until = -int(-(window.at + window.span) // BIN)
        if until <= self._bins_until:
            return
        for number in range(max(self._bins_until, int(window.at // BIN)), until):
            day = number // BINS_A_DAY
            self._seen[day] = self._seen.get(day, 0) + 1
        self._bins_until = until
        while len(self._seen) > MAX_DAYS:
            del self._seen[min(self._seen)]

    def _notice_clock(self, now: float) -> None:
        """After the clock was set back, what seems to come from the future must not make all that comes look old."""
        if self.at is None or self.at - now <= SET_BACK_SECONDS:
            return
        self.at, self.since = now, min(self.since or now, now)
        self._bins_until = min(self._bins_until, int(now // BIN))
        self._seen = {day: bins for day, bins in self._seen.items() if day <= now // DAY}
        self._nodes = {name: (min(at, now), min(before, now)) for name, (at, before) in self._nodes.items()}
        for book in self._books.values():
            book.clip(now)
        for namespace in self._namespaces.values():
            namespace.clip(now)
