"""Copies the host's files for a bundle in a process of its own: `python -m gpuwatch.diagnose.bundling.copier PLACES`.

A wedged driver may keep whoever opens its files, for ever. Hence every area is read by a thread of its own, what is
read is told at once, and nobody waits for this process longer than it wants to.
"""

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator

import msgspec

from gpuwatch.collect.reader.messages import LENGTH, Outbox, framed, private_stdout, release_streams
from gpuwatch.diagnose.bundling.allow_list import AREAS, Taken
from gpuwatch.diagnose.bundling.copying import Found, Member, Tree, contents
from gpuwatch.diagnose.bundling.redaction import Redactor
from gpuwatch.diagnose.bundling.selected_files import OF_KERNEL, PICKS, there
from gpuwatch.diagnose.places import Places

LATE = "the files of this area were not read in time: somebody, the driver perhaps, keeps their reader"
GONE = "the process that reads files ended before it was done"

_REDACTOR = Redactor()


class Copied(msgspec.Struct, frozen=True, kw_only=True):
    """What is told over the pipe: one entry, or that an area is done."""

    area: str
    member: Member | None = None


def copied(places: Places, seconds: float) -> tuple[list[Member], dict[str, str]]:
    """The host's files, and the areas that are not whole -> why. Takes `seconds` at most."""
    command = [sys.executable, "-m", "gpuwatch.diagnose.bundling.copier", msgspec.json.encode(places).decode()]
    news: queue.SimpleQueue[Copied | None] = queue.SimpleQueue()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    threading.Thread(target=_listen, args=(process, news), name="copier", daemon=True).start()
    waiting, members, until = set(jobs(places)), list[Member](), time.monotonic() + seconds
    missing = LATE
    while waiting:
        try:
            told = news.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        if told is None:
            missing = GONE
            break
        if told.member is None:
            waiting.discard(told.area)
        else:
            members.append(told.member)
    if process.stdin is not None:
        process.stdin.close()  # it ends, unless the driver keeps it; it is never killed
    return members, dict.fromkeys(sorted(waiting), missing)


def _listen(process: "subprocess.Popen[bytes]", news: "queue.SimpleQueue[Copied | None]") -> None:
    pipe = process.stdout
    assert pipe is not None  # noqa: S101 Popen was asked for a pipe
    with pipe:
        while len(head := pipe.read(LENGTH.size)) == LENGTH.size:
            news.put(msgspec.msgpack.decode(pipe.read(*LENGTH.unpack(head)), type=Copied))
    news.put(None)
    process.wait()


def jobs(places: Places) -> dict[str, Iterator[Member]]:
    """Area -> its files. In a container that does not see the host's root only those of proc, sys and dev."""
    tree = Tree(places)
    rows = {area: [row for row in taken if _is_visible(places, row)] for area, taken in AREAS.items()}
    picks = {area: pick for area, pick in PICKS.items() if area in OF_KERNEL or not places.hidden}
    return {area: members_of(tree, rows[area]) for area in rows} | {area: picks[area](tree) for area in picks}


def _is_visible(places: Places, row: Taken) -> bool:
    return not places.hidden or row.pattern.startswith(("proc/", "sys/", "dev/"))


def members_of(tree: Tree, rows: Iterable[Taken]) -> Iterator[Member]:
    """What the rows of one area take."""
    for row in rows:
        if row.keep is None:
            yield from there(tree, row.pattern)
            continue
        for item in tree.find(row.pattern):
            if isinstance(item, Member):
                yield item
            elif not item.at.is_dir():
                yield _kept(row, item)


def _kept(row: Taken, found: Found) -> Member:
    try:
        body, cut = contents(found, row.reads, tail=row.tail)
        modified = found.at.stat().st_mtime
    except OSError as error:
        return Member(path=found.path, failed=error.strerror or str(error))
    if not row.binary and row.keep is not None:
        try:
            body = _REDACTOR.text(row.keep(body.decode(errors="replace"))).encode()
        except Exception as error:  # noqa: BLE001 what cannot be understood cannot be redacted, hence is not taken
            return Member(path=found.path, failed=f"left out: {type(error).__name__}")
    if len(body) > row.most:
        body, cut = (
            (body[-row.most :] if row.tail else body[: row.most]),
            cut or f"only {row.most} bytes of {len(body)}",
        )
    return Member(path=found.path, body=body, modified=modified, cut=cut)


def main() -> None:
    """Tell everything, then wait for the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both; the parent ends this process
    places = msgspec.json.decode(sys.argv[1], type=Places)
    outbox = Outbox(private_stdout())
    for area, members in jobs(places).items():
        threading.Thread(target=_tell, args=(area, members, outbox), daemon=True).start()
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written there
    release_streams()
    os._exit(0)


def _tell(area: str, members: Iterator[Member], outbox: Outbox) -> None:
    try:
        for member in members:
            outbox.write(framed(msgspec.msgpack.encode(Copied(area=area, member=member))))
    except Exception as error:  # noqa: BLE001 one odd file must not cost the other areas
        failed = Member(path=area, failed=f"{type(error).__name__}: {error}")
        outbox.write(framed(msgspec.msgpack.encode(Copied(area=area, member=failed))))
    outbox.write(framed(msgspec.msgpack.encode(Copied(area=area))))


if __name__ == "__main__":
    main()
