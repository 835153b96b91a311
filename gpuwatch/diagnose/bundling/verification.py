"""Verifies a bundle before it is written: its files are read again, and what differs from the host is recorded."""

import logging
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from gpuwatch.diagnose.bundling.allowed_facts import allowed_host
from gpuwatch.diagnose.bundling.host_tree import BundleMember
from gpuwatch.diagnose.bundling.redaction import Redactor
from gpuwatch.diagnose.facts import HOST_SECTIONS, HostFacts, NodeFacts
from gpuwatch.diagnose.gathering.probe import read_section
from gpuwatch.diagnose.gathering.recorded import NAME, RecordedHost
from gpuwatch.diagnose.places import RECORDED, Places
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import UNREADABLE

log = logging.getLogger(__name__)

NOT_LOOKED = "it was not looked for when the bundle was made"


def host_record(facts: NodeFacts, members: Iterable[BundleMember], redactor: Redactor) -> BundleMember:
    """gpuwatch/host.json: the sections that a diagnosis of the copied files would find different from the host's."""
    path = f"{RECORDED}/{NAME}"
    differing: dict[str, Any] = {}
    unread: dict[str, str] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="gpuwatch-bundle-") as folder:
            unpack(members, Path(folder))
            copy = Places.tree(Path(folder))
            for section in HOST_SECTIONS:
                found = getattr(facts, section)
                try:
                    again = read_section(section, copy)
                except (OSError, GpuwatchError):
                    again = None
                both = [allowed_host(replace(HostFacts(), **{section: value}), redactor) for value in (found, again)]
                if found is None and again is not None:
                    unread[section] = redactor.text(facts.unread.get(section, NOT_LOOKED))
                elif found is not None and both[0] != both[1]:
                    differing[section] = found
        host = allowed_host(HostFacts(**differing), redactor)
        record = RecordedHost(at=facts.at, plain=facts.plain, host=host, unread=unread)
        body = msgspec.json.format(msgspec.json.encode(record), indent=1)
    except (OSError, *UNREADABLE) as error:
        log.warning("the bundle lacks %s: %s", path, error)
        return BundleMember(path=path, failed=f"{type(error).__name__}: it could not be made")
    return BundleMember(path=path, body=body)


def unpack(members: Iterable[BundleMember], folder: Path) -> None:
    """Write members into a folder as tar would; the first of two entries of the same path stays.

    Raises:
        OSError: the disk is full, for example.
    """
    for member in members:
        target = folder / member.path
        if member.failed or target.exists():
            continue
        if member.folder:
            target.mkdir(parents=True, exist_ok=True)
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(member.body)
