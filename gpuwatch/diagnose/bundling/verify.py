"""Tries a bundle before it is handed out: its files are read again, and what differs from the host is recorded."""

import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gpuwatch.diagnose.bundling import allowed_facts as shared
from gpuwatch.diagnose.bundling.copying import Member
from gpuwatch.diagnose.bundling.redaction import Redactor
from gpuwatch.diagnose.facts import HOST_SECTIONS, HostFacts, HostSection, NodeFacts
from gpuwatch.diagnose.gathering.recorded import NAME, Recorded
from gpuwatch.diagnose.gathering.sections import read
from gpuwatch.diagnose.places import RECORDED, Places
from gpuwatch.model.errors import GpuwatchError

log = logging.getLogger(__name__)

NOT_LOOKED = "it was not looked for when the bundle was made"


def host_record(facts: NodeFacts, members: Iterable[Member], hide: Redactor) -> Member:
    """gpuwatch/host.json."""
    path = f"{RECORDED}/{NAME}"
    try:
        with tempfile.TemporaryDirectory(prefix="gpuwatch-bundle-") as folder:
            unpack(members, Path(folder))
            record = _record(facts, Places.tree(Path(folder)), hide)
        body = msgspec.json.format(msgspec.json.encode(record), indent=1)
    except (OSError, msgspec.MsgspecError) as error:
        log.warning("the bundle lacks %s: %s", path, error)
        return Member(path=path, failed=f"{type(error).__name__}: it could not be made")
    return Member(path=path, body=body)


def unpack(members: Iterable[Member], folder: Path) -> None:
    """As tar would; what stands in the way of another entry stays.

    Raises:
        OSError: the disk is full, for one.
    """
    for member in members:
        target = folder / member.path
        if member.failed or target.is_symlink() or target.exists():
            continue
        if member.folder:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if member.link is not None:
            target.symlink_to(member.link)
        else:
            target.write_bytes(member.body)


def _record(facts: NodeFacts, copy: Places, hide: Redactor) -> Recorded:
    host: dict[str, Any] = {}
    unread: dict[str, str] = {}
    for section in HOST_SECTIONS:
        found, again = getattr(facts, section), _again(section, copy)
        if found is None and again is not None:
            unread[section] = hide.text(facts.unread.get(section, NOT_LOOKED))
        elif found is not None and _shared(section, found, hide) != _shared(section, again, hide):
            host[section] = found
    return Recorded(at=facts.at, plain=facts.plain, host=shared.host(HostFacts(**host), hide), unread=unread)


def _shared(section: HostSection, value: Any, hide: Redactor) -> Any:
    return getattr(shared.host(replace(HostFacts(), **{section: value}), hide), section)


def _again(section: HostSection, copy: Places) -> Any:
    try:
        return read(section, copy)
    except (OSError, GpuwatchError):
        return None
