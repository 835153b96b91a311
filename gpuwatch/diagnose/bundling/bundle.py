"""Everything a support case needs, in one archive that opens without gpuwatch and can be diagnosed again.

Only what `taken`, `picked` and `bundle_parts` name goes in; what looks like a secret is taken out of that, too. Each
part is contained: what could not be had is named in README.txt, and the rest is there.
"""

import os
import re
from datetime import UTC, datetime
from pathlib import Path

from gpuwatch.config import Config
from gpuwatch.diagnose.bundling import allowed_facts as shared
from gpuwatch.diagnose.bundling.archive import unpacked_bytes, write_archive
from gpuwatch.diagnose.bundling.copier import copied
from gpuwatch.diagnose.bundling.copying import Member
from gpuwatch.diagnose.bundling.parts import Material, parts
from gpuwatch.diagnose.bundling.readme import readme
from gpuwatch.diagnose.bundling.verify import host_record
from gpuwatch.diagnose.facts import HOST_SECTIONS, NodeFacts
from gpuwatch.diagnose.places import Places
from gpuwatch.model.errors import GpuwatchError, PermissionMissing, UsageError
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import Events

LIMIT = 20 << 20
"""Bytes of all files of a bundle together, unpacked."""

SECONDS = 10.0
"""For copying the host's files."""


class Contents(Record, frozen=True, kw_only=True):
    """What a bundle is made of. `document` and `screen`: the diagnosis as `-o json` and as the screen without colours.
    `events`: None where nobody tells.
    """

    facts: NodeFacts
    places: Places
    config: Config
    document: str
    screen: str
    events: Events | None = None


class Written(Record, frozen=True, kw_only=True):
    """A bundle on the disk: `bytes` packed. `missing`: what could not be had or was cut -> why."""

    path: str
    files: int
    bytes: int
    missing: dict[str, str] = {}


def check_target(target: Path) -> None:
    """Before anything is gathered: can a file be made there?

    Raises:
        UsageError: its folder is not there, or it is a folder or a device itself.
        PermissionMissing: nothing may be written there.
    """
    if target.is_dir():
        raise UsageError(f"{target} is a folder", "a bundle is one file", f"write --bundle {target}/case.tgz")
    if target.exists() and not target.is_file():  # as root, a new file would take the place of /dev/null
        raise UsageError(f"cannot write {target}", "it is no plain file", "name another")
    if not target.parent.is_dir():
        raise UsageError(f"cannot write {target}", f"there is no folder {target.parent}", "make it, or name another")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionMissing(f"cannot write {target}", "the folder is not ours to write", "name another file")


def write_bundle(target: Path, contents: Contents, limit: int = LIMIT, seconds: float = SECONDS) -> Written:
    """Gather, redact and write; a file of that name is replaced once the new one is whole.

    Raises:
        GpuwatchError: it cannot be written.
    """
    facts, hide = contents.facts, shared.redactor(contents.facts)
    material = Material(facts, contents.config, contents.document, contents.screen, contents.events, hide)
    own = list(parts(material))
    copies, late = _copies(contents, seconds)
    record = host_record(facts, [*own, *copies], hide)
    missing = {f"files: {area}": why for area, why in late.items()}
    members = _fitting([*own, record, *_once(copies)], limit, missing)
    top = _top(facts)
    text = readme(facts, top, members, missing)
    whole = [Member(path="README.txt", body=text.encode()), *members]
    try:
        size = write_archive(target, whole, top, facts.at)
    except OSError as error:
        why = error.strerror or str(error)
        raise GpuwatchError(f"cannot write {target}", why, "name another file with --bundle") from error
    return Written(path=str(target), files=len(whole), bytes=size, missing=missing)


def _copies(contents: Contents, seconds: float) -> tuple[list[Member], dict[str, str]]:
    """None of a host that was not looked at: it is another machine than this one."""
    facts = contents.facts
    if all(getattr(facts, section) is None for section in HOST_SECTIONS):
        return [], {"all": facts.unread.get(HOST_SECTIONS[0], "the host was not looked at")}
    return copied(contents.places, seconds)


def _once(members: list[Member]) -> list[Member]:
    """Several areas may come by the same file: one that could be read counts before one that could not."""
    best: dict[str, Member] = {}
    for member in sorted(members, key=lambda each: (bool(each.failed), each.link is None)):
        best.setdefault(member.path, member)
    return [best[path] for path in sorted(best)]


def _fitting(members: list[Member], limit: int, missing: dict[str, str]) -> list[Member]:
    """As many as there is room for, the short ones of the host first; what is not whole is noted."""
    left, kept = limit, []
    for member in members:
        if member.failed:
            missing[member.path] = member.failed
        elif unpacked_bytes(member) > left:
            missing[member.path] = f"left out: the bundle would be longer than {limit} bytes"
        else:
            left -= unpacked_bytes(member)
            kept.append(member)
            if member.cut:
                missing[member.path] = member.cut
    return kept


def _top(facts: NodeFacts) -> str:
    """Name of the folder that all is in, so that taking it apart spills nothing."""
    name = re.sub(r"[^\w.-]+", "-", facts.node or "node", flags=re.ASCII).strip(".-")[:100] or "node"
    return f"gpuwatch-{name}-{datetime.fromtimestamp(facts.at, UTC):%Y%m%dT%H%M%SZ}"
