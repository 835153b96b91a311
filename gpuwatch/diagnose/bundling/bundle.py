"""Everything a support case needs, in one archive that opens without gpuwatch and can be diagnosed again.

Only the files and facts that `allowed_files` and `allowed_facts` name go in, redacted. A part that fails does not
affect the others: README.txt names the missing parts.
"""

import gzip
import io
import os
import re
import tarfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from gpuwatch import __version__
from gpuwatch.config.named_file import replacing
from gpuwatch.diagnose.bundling.allowed_facts import PARTS, BundleContents, facts_redactor, parts
from gpuwatch.diagnose.bundling.allowed_files import copied
from gpuwatch.diagnose.bundling.host_tree import BundleMember
from gpuwatch.diagnose.facts import HOST_SECTIONS, NodeFacts
from gpuwatch.model.clock import rfc3339
from gpuwatch.model.errors import GpuwatchError, PermissionMissing, UsageError
from gpuwatch.model.snapshot import Record

LIMIT = 20 << 20
"""Bytes of all files of a bundle together, unpacked."""

TAR_BLOCK = 512
"""Bytes of the header of a tar entry; its contents are rounded up to whole blocks."""

README = """\
Support bundle of {node}, made by gpuwatch {version} at {at}.

Start with diagnosis.txt: the first failure on top is where to begin.

CONTENTS
{parts}

{folders}

TO DIAGNOSE IT AGAIN
  gpuwatch diagnose --root THIS_FILE

LEFT OUT ON PURPOSE
Command lines and environments of processes; values of environment variables in container configuration; registry
credentials; kubeconfigs, tokens, keys, certificates; labels and annotations of unknown domains; traffic of the node.
Only known files and known keys of them are taken. Anything in them that looks like a secret reads [redacted].
Names of this node, its pods and users, serial numbers and UUIDs of its GPUs are included: a support case needs them.

MISSING
{missing}
"""

FOLDERS = """\
All other files ({folders}) are copies of the node's files, under the paths they have there. They are
for people: gpuwatch reads gpuwatch/host.json."""


class WrittenBundle(Record, frozen=True, kw_only=True):
    """A bundle on the disk: `bytes` packed. `missing`: each thing that is missing or was cut -> why."""

    path: str
    files: int
    bytes: int
    missing: dict[str, str] = {}


def check_target(target: Path) -> None:
    """Check that a file can be made there, before anything is gathered.

    Raises:
        UsageError: its folder is absent, or it is itself a folder, a device or standard output.
        PermissionMissing: its folder is not writable.
    """
    if str(target) == "-":
        raise UsageError("a bundle is a file", "standard output has the diagnosis", "write --bundle case.tgz")
    if target.is_dir():
        raise UsageError(f"{target} is a folder", "a bundle is one file", f"write --bundle {target}/case.tgz")
    if target.exists() and not target.is_file():
        raise UsageError(f"cannot write {target}", "it is no plain file", "name another")
    if not target.parent.is_dir():
        raise UsageError(f"cannot write {target}", f"there is no folder {target.parent}", "make it, or name another")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionMissing(f"cannot write {target}", "the folder is not writable", "name another file")


def write_bundle(target: Path, contents: BundleContents, limit: int = LIMIT) -> WrittenBundle:
    """Gather, redact and write; a file of that name is replaced once the new one is complete.

    Raises:
        GpuwatchError: it cannot be written.
    """
    facts, redactor = contents.facts, facts_redactor(contents.facts)
    own = list(parts(contents, redactor))
    copies, missing = dict[str, BundleMember](), dict[str, str]()
    if all(getattr(facts, section) is None for section in HOST_SECTIONS):  # another machine's host was diagnosed
        missing["files: all"] = facts.unread.get(HOST_SECTIONS[0], "the host was not looked at")
    else:
        copies = {member.path: member for member in copied(contents.places)}
    members = _fitting([*own, *(copies[path] for path in sorted(copies))], limit, missing)
    name = re.sub(r"[^\w.-]+", "-", facts.node or "node", flags=re.ASCII).strip(".-")[:100] or "node"
    top = f"gpuwatch-{name}-{datetime.fromtimestamp(facts.at, UTC):%Y%m%dT%H%M%SZ}"
    text = readme(facts, top, members, missing)
    whole = [BundleMember(path="README.txt", body=text.encode()), *members]
    try:
        size = write_archive(target, whole, top, facts.at)
    except OSError as error:
        why = error.strerror or str(error)
        raise GpuwatchError(f"cannot write {target}", why, "name another file with --bundle") from error
    return WrittenBundle(path=str(target), files=len(whole), bytes=size, missing=missing)


def _fitting(members: list[BundleMember], limit: int, missing: dict[str, str]) -> list[BundleMember]:
    """Those that fit into `limit` bytes, in order; each that is incomplete or left out is added to `missing`."""
    left, kept = limit, []
    for member in members:
        size = TAR_BLOCK + -(-len(member.body) // TAR_BLOCK) * TAR_BLOCK
        if member.failed:
            missing[member.path] = member.failed
        elif size > left:
            missing[member.path] = f"left out: the bundle would be longer than {limit} bytes"
        else:
            left -= size
            kept.append(member)
            if member.cut:
                missing[member.path] = member.cut
    return kept


def readme(facts: NodeFacts, top: str, members: Iterable[BundleMember], missing: Mapping[str, str]) -> str:
    """README.txt, for readers with and without gpuwatch."""
    there = {member.path for member in members}
    folders = sorted({path.partition("/")[0] for path in there if "/" in path} - {"gpuwatch"})
    return README.format(
        node=facts.node or "a node",
        version=__version__,
        at=rfc3339(facts.at),
        parts="\n".join(f"  {part.path:<24} {part.title}" for part in PARTS if part.path in there),
        folders=FOLDERS.format(folders=", ".join(folders)) if folders else "No file of the node could be copied.",
        top=top,
        missing="\n".join(f"  {path}: {why}" for path, why in missing.items()) or "  Nothing.",
    )


def write_archive(target: Path, members: Iterable[BundleMember], top: str, at: float) -> int:
    """Write a gzipped tar, complete or not at all, readable by its owner only: entries below the folder `top`, with
    time `at` where they have none of their own. Returns its size in bytes.

    Raises:
        OSError: it cannot be written; no file is left behind.
    """
    with replacing(target, 0o600) as file:
        with (
            gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=int(at)) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
        ):
            for member in (BundleMember(path="", folder=True), *members):
                entry = tarfile.TarInfo(f"{top}/{member.path}".rstrip("/"))
                entry.mtime = int(member.modified or at)
                entry.mode = 0o644
                entry.uname = entry.gname = "root"
                if member.folder:
                    entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                else:
                    entry.size = len(member.body)
                tar.addfile(entry, io.BytesIO(member.body))
        return file.tell()
