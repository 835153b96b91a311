"""The files of the host that go into a bundle, filtered and redacted; a file not named here is never taken.

None of them is the driver's, which could block its reader: `gpuwatch/host.json` has what those contain.
"""

import re
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

from gpuwatch.diagnose.bundling import filters
from gpuwatch.diagnose.bundling.filters import Filter
from gpuwatch.diagnose.bundling.host_tree import BundleMember, HostFile, HostFiles, contents
from gpuwatch.diagnose.bundling.redaction import Redactor
from gpuwatch.diagnose.places import Places

MIB = 1 << 20

_REDACTOR = Redactor()


class AllowedFile(NamedTuple):
    """Files below the host's root by pattern. `keep`: their filter (`str`: none, redaction follows); `reads`: bytes
    read of each; `most`: bytes kept of it; `tail`: both from its end.
    """

    pattern: str
    keep: Filter = str
    reads: int = MIB
    most: int = MIB
    tail: bool = False


def allowed(*patterns: str, keep: Filter = str, reads: int = MIB) -> tuple[AllowedFile, ...]:
    """A row for each alternative in braces: `etc/{cdi,cni}/*` is `etc/cdi/*` and `etc/cni/*`."""
    spread: list[str] = []
    for pattern in patterns:
        parts = [part[1:-1].split(",") if part[:1] == "{" else [part] for part in re.split(r"(\{[^}]*\})", pattern)]
        spread += map("".join, product(*parts))
    return tuple(AllowedFile(each, keep, reads) for each in spread)


_KUBELET = "{var/lib/kubelet,var/lib/k0s/kubelet,var/snap/microk8s/common/var/lib/kubelet}"
_CONTAINERD = (
    "{etc/containerd,etc/containerd/*,etc/k0s,etc/k0s/containerd.d,var/lib/rancher/k3s/agent/etc/containerd,"
    "var/lib/rancher/rke2/agent/etc/containerd,var/snap/microk8s/current/args}/*.toml"
)

ALLOWED: tuple[AllowedFile, ...] = (
    AllowedFile("proc/cmdline", filters.cmdline),
    *allowed("proc/{modules,devices,meminfo,sys/kernel/osrelease}"),
    *allowed("etc/{os-release,hostname}"),
    *allowed("{etc,run,usr/local/lib,usr/lib,lib}/modprobe.d/*.conf", keep=filters.modprobe),
    *allowed(_CONTAINERD, keep=filters.as_toml(filters.CONTAINERD)),
    *allowed("etc/crio/{crio.conf,crio.conf.d/*}", keep=filters.as_toml(filters.CRIO)),
    *allowed("etc/docker/daemon.json", keep=filters.as_json(filters.DOCKER)),
    *allowed(
        "{etc,usr/local/nvidia/toolkit/.config}/nvidia-container-runtime/config.toml",
        keep=filters.as_toml(filters.TOOLKIT),
    ),
    *allowed("var/lib/dpkg/status", keep=filters.packages, reads=32 * MIB),
    *allowed("{etc,var/run}/cdi/*", keep=filters.as_yaml(filters.CDI)),
    *allowed(f"{_KUBELET}/config.yaml", keep=filters.as_yaml(filters.KUBELET)),
    *allowed(f"{_KUBELET}/device-plugins/kubelet_internal_checkpoint", keep=filters.as_json(filters.CHECKPOINT)),
    *allowed("run/nvidia/validations/*", keep=filters.assignments),
    *(
        row._replace(most=2 * MIB, tail=True)
        for row in allowed("{,run/nvidia/driver/}var/log/fabricmanager.log", reads=2 * MIB)
    ),
)


def copied(places: Places) -> Iterator[BundleMember]:
    """The host's files. In a container without the host's root only those of proc."""
    tree = HostFiles(places)
    visible = "proc/" if places.hidden else ""
    for row in ALLOWED:
        if row.pattern.startswith(visible):
            for item in tree.find(row.pattern):
                if item.at.is_dir():
                    continue
                member = _filtered(row, item)
                path = "/".join(map(_REDACTOR.text, member.path.split("/")))
                if path != member.path:  # nothing else would redact a secret in the name of a file
                    member = BundleMember(path=path, failed="left out: its name looks like a secret")
                yield member
    if next(tree.steps, None) is None:
        yield BundleMember(path="files: others", failed="left out: too many names match what a bundle takes")


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
