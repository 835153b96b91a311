"""Copies the host's files for a bundle in a process of its own: `python -m gpuwatch.diagnose.bundling.copier PLACES`.

A wedged driver may block every reader of its files, for ever. Hence every area is read by a thread of its own, each
entry is sent at once, and the parent never waits for this process longer than it wants to.
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
from gpuwatch.diagnose.bundling.allow_list import AREAS, AllowedFile
from gpuwatch.diagnose.bundling.host_tree import BundleMember, HostFile, HostFiles, contents
from gpuwatch.diagnose.bundling.redaction import Redactor
from gpuwatch.diagnose.places import Places
from gpuwatch.model.decoding import prepared

LATE = "the files of this area were not read in time: the driver, perhaps, blocks their reader"
GONE = "the process that reads files ended before it was done"

_REDACTOR = Redactor()


class CopiedMember(msgspec.Struct, frozen=True, kw_only=True):
    """One message over the pipe: one entry, or without a member that the area is done."""

    area: str
    member: BundleMember | None = None


def copied(places: Places, seconds: float) -> tuple[list[BundleMember], dict[str, str]]:
    """The host's files, and the areas that are not complete -> why. Takes `seconds` at most."""
    command = [sys.executable, "-m", "gpuwatch.diagnose.bundling.copier", msgspec.json.encode(places).decode()]
    messages: queue.SimpleQueue[CopiedMember | None] = queue.SimpleQueue()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def receive() -> None:
        pipe = process.stdout
        assert pipe is not None  # noqa: S101 Popen was asked for a pipe
        with pipe:
            while len(head := pipe.read(LENGTH.size)) == LENGTH.size:
                messages.put(msgspec.msgpack.decode(pipe.read(*LENGTH.unpack(head)), type=prepared(CopiedMember)))
        messages.put(None)
        process.wait()

    threading.Thread(target=receive, name="copier", daemon=True).start()
    waiting, members, until = set(jobs(places)), list[BundleMember](), time.monotonic() + seconds
    missing = LATE
    while waiting:
        try:
            message = messages.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        if message is None:
            missing = GONE
            break
        if message.member is None:
            waiting.discard(message.area)
        else:
            members.append(message.member)
    if process.stdin is not None:
        process.stdin.close()  # it ends, unless the driver blocks it; it is never killed
    return members, dict.fromkeys(sorted(waiting), missing)


def jobs(places: Places) -> dict[str, Iterator[BundleMember]]:
    """Area -> its files. In a container without the host's root only those of proc and sys."""
    tree = HostFiles(places)
    visible = ("proc/", "sys/") if places.hidden else ("",)
    found = {
        area: members_of(tree, [row for row in rows if row.pattern.startswith(visible)]) for area, rows in AREAS.items()
    }
    return {area: map(without_secret_name, members) for area, members in found.items()}


def members_of(tree: HostFiles, rows: Iterable[AllowedFile]) -> Iterator[BundleMember]:
    """The files that the rows of one area allow."""
    for row in rows:
        for item in tree.find(row.pattern):
            if not item.at.is_dir():
                yield _filtered(row, item)


def _filtered(row: AllowedFile, found: HostFile) -> BundleMember:
    try:
        body, cut = contents(found, row.reads, tail=row.tail)
        modified = found.at.stat().st_mtime
    except OSError as error:
        return BundleMember(path=found.path, failed=error.strerror or str(error))
    try:
        body = _REDACTOR.text(row.keep(body.decode(errors="replace"))).encode()
    except Exception as error:  # noqa: BLE001 a file that cannot be parsed cannot be redacted, hence is not taken
        return BundleMember(path=found.path, failed=f"left out: {type(error).__name__}")
    if len(body) > row.most:
        cut = cut or f"only {row.most} bytes of {len(body)}"
        body = body[-row.most :] if row.tail else body[: row.most]
    return BundleMember(path=found.path, body=body, modified=modified, cut=cut)


def without_secret_name(member: BundleMember) -> BundleMember:
    """`member`, or what stands for it: a secret may be the name of a file, which nothing else would redact."""
    path = "/".join(map(_REDACTOR.text, member.path.split("/")))
    if path == member.path:
        return member
    return BundleMember(path=path, failed="left out: its name looks like a secret")


def main() -> None:
    """Send everything, then wait for the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to both; the parent ends this process
    places = msgspec.json.decode(sys.argv[1], type=prepared(Places))
    outbox = Outbox(private_stdout())

    def send(area: str, members: Iterator[BundleMember]) -> None:
        def write(member: BundleMember | None) -> None:
            outbox.write(framed(msgspec.msgpack.encode(CopiedMember(area=area, member=member))))

        try:
            for member in members:
                write(member)
        except Exception as error:  # noqa: BLE001 one odd file must not cost the other areas
            write(BundleMember(path=area, failed=f"{type(error).__name__}: {error}"))
        write(None)

    for area, members in jobs(places).items():
        threading.Thread(target=send, args=(area, members), daemon=True).start()
    os.read(sys.stdin.fileno(), 1)  # nothing is ever written there
    release_streams()
    os._exit(0)


if __name__ == "__main__":
    main()
