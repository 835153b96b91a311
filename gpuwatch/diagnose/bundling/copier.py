"""Copies the host's files that `allow_list` names, filtered and redacted.

None of them is the driver's, which could hang its reader: what those say is in `gpuwatch/host.json`.
"""

from collections.abc import Iterator

from gpuwatch.diagnose.bundling.allow_list import ALLOWED, AllowedFile
from gpuwatch.diagnose.bundling.host_tree import BundleMember, HostFile, HostFiles, contents
from gpuwatch.diagnose.bundling.redaction import Redactor
from gpuwatch.diagnose.places import Places

_REDACTOR = Redactor()


def copied(places: Places) -> Iterator[BundleMember]:
    """The host's files. In a container without the host's root only those of proc."""
    tree = HostFiles(places)
    visible = "proc/" if places.hidden else ""
    for row in ALLOWED:
        if row.pattern.startswith(visible):
            for item in tree.find(row.pattern):
                if not item.at.is_dir():
                    yield without_secret_name(_filtered(row, item))


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
