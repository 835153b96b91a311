"""Get, list and watch."""

import base64
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from gpuwatch.model.clock import Clock
from gpuwatch.sim.kubeapi.message import Object
from gpuwatch.sim.kubeapi.route import Call
from gpuwatch.sim.kubeapi.selectors import Filter
from gpuwatch.sim.kubeapi.status import bad_request, expired, not_found
from gpuwatch.sim.kubeapi.store import Key, Store, Write
from gpuwatch.sim.kubeapi.watch import Watch

_WATCH_SECONDS = 1800.0  # between one and two times --min-request-timeout


class _Continue(msgspec.Struct, frozen=True, kw_only=True):
    """Where a list in pieces goes on."""

    revision: int
    after: tuple[str, str]


class Reads:
    """Answers from the store; the watches it hands out are kept fed."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._watches: dict[tuple[str, str | None], set[Watch]] = defaultdict(set)
        store.listeners.append(self._feed)

    def get(self, call: Call) -> Object:
        """One object. Raises ApiError 404."""
        found = self._store.get(Key(call.resource.plural, call.namespace, call.name))
        if found is None:
            raise not_found(call.resource, call.name)
        return found

    def list(self, call: Call) -> Object:
        """Objects in the order of namespace and name, in pieces where `limit` says so.

        All pieces show the revision of the first. Raises ApiError 400 for options that make no sense, 410 for a
        revision that is forgotten.
        """
        selection = Filter.of(call.resource, call.query)
        token = _decoded(call.query.get("continue", ""))
        revision = token.revision if token else self._revision(call)
        found = [each for each in self._candidates(call, selection, revision) if selection.matches(each)]
        if token:
            found = [each for each in found if _place(each) > token.after]
        metadata: Object = {"resourceVersion": str(revision)}
        limit = call.number("limit")
        if limit and len(found) > limit:
            after = _Continue(revision=revision, after=_place(found[limit - 1]))
            metadata["continue"] = base64.urlsafe_b64encode(msgspec.json.encode(after)).decode()
            if not (selection.labels or selection.fields):
                metadata["remainingItemCount"] = len(found) - limit
            found = found[:limit]
        return {
            "kind": f"{call.resource.kind}List",
            "apiVersion": call.resource.api_version,
            "metadata": metadata,
            "items": [{key: part for key, part in each.items() if key not in ("kind", "apiVersion")} for each in found],
        }

    def watch(self, call: Call) -> Watch:
        """Changes after `resourceVersion`; without one, or from 0, what exists comes first.

        A revision that is forgotten ends the watch at once with an ERROR event, 410 Expired.
        """
        selection = Filter.of(call.resource, call.query)
        seconds = call.number("timeoutSeconds") or _WATCH_SECONDS
        watch = Watch(
            selection,
            call.namespace,
            bookmarks=call.query.get("allowWatchBookmarks") in ("1", "true", "True"),
            deadline=self._clock.monotonic() + seconds,
        )
        since, initial = call.number("resourceVersion"), call.query.get("sendInitialEvents") == "true"
        if since == 0 or initial:
            found = self._candidates(call, selection, self._store.revision)
            watch.show([each for each in found if selection.matches(each)], self._store.revision, initial=initial)
        elif since < self._store.compacted:
            watch.fail(expired(f"too old resource version: {since} ({self._store.revision})").status)
            return watch
        else:
            for write in self._store.since(since):
                if write.key.resource == call.resource.plural:
                    watch.offer(write)
        self._watches[_feed_of(selection)].add(watch)
        return watch

    def tick(self, *, bookmark: bool) -> None:
        """End watches whose time is over; tell the others how far they are, where `bookmark` says so."""
        now = self._clock.monotonic()
        for watches in self._watches.values():
            for watch in tuple(watches):
                over = now >= watch.deadline
                if watch.bookmarks and (bookmark or over) and not watch.closed:
                    watch.bookmark(self._store.revision)
                if over:
                    watch.close()
                if watch.closed:
                    watches.discard(watch)

    def drop(self, watch: Watch) -> None:
        """Forget a watch that nobody reads any more."""
        watch.close()
        self._watches[_feed_of(watch.selection)].discard(watch)

    @property
    def open_watches(self) -> int:
        """Watches that are fed."""
        return sum(map(len, self._watches.values()))

    def _feed(self, write: Write) -> None:
        for name in (None, write.key.name):
            for watch in tuple(self._watches.get((write.key.resource, name), ())):
                watch.offer(write)

    def _revision(self, call: Call) -> int:
        wanted = call.number("resourceVersion")
        if call.query.get("resourceVersionMatch") != "Exact":
            return self._store.revision
        if wanted < self._store.compacted:
            raise expired("The provided resource version is too old.")
        return wanted

    def _candidates(self, call: Call, selection: Filter, revision: int) -> Sequence[Object]:
        """What the selectors have to look at: a list of one node's pods must not cost a walk over all pods."""
        resource, name, node = call.resource, selection.only("metadata.name"), selection.only("spec.nodeName")
        now = revision == self._store.revision
        if now and name is not None and (call.namespace or not resource.namespaced):
            found = self._store.get(Key(resource.plural, call.namespace, name))
            return [] if found is None else [found]
        if now and node and resource.plural == "pods":
            pods = self._store.pods_on(node)
            return [pod for pod in pods if not call.namespace or pod["metadata"]["namespace"] == call.namespace]
        if revision < self._store.compacted:
            raise expired("The provided continue parameter is too old to display a consistent list result.")
        return self._store.all(resource.plural, call.namespace, at=revision)


def _feed_of(selection: Filter) -> tuple[str, str | None]:
    return selection.resource.plural, selection.only("metadata.name")


def _place(value: Object) -> tuple[str, str]:
    return value["metadata"].get("namespace", ""), value["metadata"]["name"]


def _decoded(token: str) -> _Continue | None:
    if not token:
        return None
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(token), type=_Continue)
    except ValueError as error:
        raise bad_request(f"continue key is not valid: {error}") from error
