"""Which files of the host go into a bundle, and the filter of each; a file not named here is never taken."""

import re
from itertools import product
from typing import NamedTuple

from gpuwatch.diagnose.bundling import filters
from gpuwatch.diagnose.bundling.filters import Filter

MIB = 1 << 20


class AllowedFile(NamedTuple):
    """Files below the host's root by pattern. `keep`: their filter; None: only their presence is recorded, they are not
    even opened. `reads`: bytes read of each, `most`: bytes kept of it; `tail`: from its end; `binary`: kept unfiltered.
    """

    pattern: str
    keep: Filter | None = filters.whole
    reads: int = MIB
    most: int = MIB
    tail: bool = False
    binary: bool = False


def allowed(*patterns: str, keep: Filter | None = filters.whole, reads: int = MIB) -> tuple[AllowedFile, ...]:
    """A row for each alternative in braces: `etc/{cdi,cni}/*` is `etc/cdi/*` and `etc/cni/*`."""
    spread: list[str] = []
    for pattern in patterns:
        parts = [part[1:-1].split(",") if part[:1] == "{" else [part] for part in re.split(r"(\{[^}]*\})", pattern)]
        spread += map("".join, product(*parts))
    return tuple(AllowedFile(each, keep, reads) for each in spread)


def present(*patterns: str) -> tuple[AllowedFile, ...]:
    """Files whose presence is all that matters."""
    return allowed(*patterns, keep=None)


_DRIVERS = "{,run/nvidia/driver/,home/kubernetes/bin/nvidia/,opt/nvidia/driver/,usr/local/nvidia/}"
_BIN = "{usr/bin,bin,usr/sbin,sbin,usr/local/bin,usr/local/sbin,usr/local/nvidia/bin,run/current-system/sw/bin}"
_LIB = (
    "{usr/lib/*-linux-gnu,usr/lib64,usr/lib64/nvidia,usr/lib,usr/local/nvidia/lib64,usr/local/lib,lib/*-linux-gnu,lib64,"
    "run/opengl-driver/lib,x86_64-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla,usr/local/glibc/usr/lib}"
)
_KUBELET = "{var/lib/kubelet,var/lib/k0s/kubelet,var/snap/microk8s/common/var/lib/kubelet}"
_CONTAINERD = (
    "{etc/containerd,etc/containerd/*,etc/k0s,etc/k0s/containerd.d,var/lib/rancher/k3s/agent/etc/containerd,"
    "var/lib/rancher/rke2/agent/etc/containerd,var/snap/microk8s/current/args}/*.toml"
)

AREAS: dict[str, tuple[AllowedFile, ...]] = {
    "kernel": (
        AllowedFile("proc/cmdline", filters.cmdline),
        *allowed("proc/{modules,devices,meminfo,sys/kernel/osrelease}"),
        *allowed("etc/{os-release,hostname}"),
        *allowed("sys/module/module/parameters/sig_enforce"),
        AllowedFile("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", most=16, binary=True),
        *allowed("{etc,run,usr/local/lib,usr/lib,lib}/modprobe.d/*.conf", keep=filters.modprobe),
        *allowed("lib/modules/*/modules.dep", keep=filters.nvidia_lines, reads=8 * MIB),
        *present("lib/modules/*/build", "var/lib/dkms/nvidia/[0-9]*"),
    ),
    "driver": (*allowed("proc/driver/nvidia/version"), *allowed("sys/module/nvidia*/version")),
    "driver parameters": allowed("proc/driver/nvidia/{params,registry}"),
    "driver GPUs": allowed("proc/driver/nvidia/gpus/*/{information,power}"),
    "driver capabilities": allowed("proc/driver/nvidia/capabilities/{,*/,*/*/,*/*/*/,*/*/*/*/}*"),
    "device files": present("dev/{nvidia*,gdrdrv,infiniband/*,nvidia-caps/*,nvidia-caps-imex-channels/*}"),
    "driver files": present(
        f"{_DRIVERS}{_LIB}/lib{{nvidia-ml,cuda,nvidia-ptxjitcompiler}}.so*",
        f"{_DRIVERS}{_BIN}/nvidia-{{smi,modprobe}}",
        f"{_DRIVERS}{{lib/,usr/lib/,}}firmware/nvidia/[0-9]*/gsp*.bin*",
        f"{_DRIVERS}dev/nvidiactl",
    ),
    "container runtime": (
        *allowed(_CONTAINERD, keep=filters.as_toml(filters.CONTAINERD)),
        *allowed("etc/crio/{crio.conf,crio.conf.d/*}", keep=filters.as_toml(filters.CRIO)),
        *allowed("etc/docker/daemon.json", keep=filters.as_json(filters.DOCKER)),
        *allowed(
            "{etc,usr/local/nvidia/toolkit/.config}/nvidia-container-runtime/config.toml",
            keep=filters.as_toml(filters.TOOLKIT),
        ),
        *present(
            "{usr/share,run,etc}/containers/oci/hooks.d/*nvidia*.json",
            "{usr/bin,usr/local/bin,usr/local/nvidia/toolkit,opt/nvidia/toolkit}/nvidia-c*",
            f"{_BIN}/{{containerd,crio,dockerd,podman,runc,crun,kubelet}}",
            "home/kubernetes/bin/nvidia",
        ),
    ),
    "packages": allowed("var/lib/dpkg/status", keep=filters.packages, reads=32 * MIB),
    "CDI": allowed("{etc,var/run}/cdi/*", keep=filters.as_yaml(filters.CDI)),
    "kubelet": (
        *allowed(f"{_KUBELET}/config.yaml", keep=filters.as_yaml(filters.KUBELET)),
        *allowed(f"{_KUBELET}/kubeadm-flags.env", keep=filters.runtime_flag),
        *allowed(f"{_KUBELET}/device-plugins/kubelet_internal_checkpoint", keep=filters.as_json(filters.CHECKPOINT)),
        *present(f"{_KUBELET}/{{device-plugins,device-plugins/*.sock,pods,pod-resources/kubelet.sock}}"),
        *present(f"{_KUBELET}/plugins_registry/*nvidia*"),
    ),
    "operator": (
        *allowed("run/nvidia/validations/*", keep=filters.assignments),
        *present("run/mellanox/drivers", "run/mellanox/drivers/.driver-ready"),
    ),
    "services": (
        *allowed("proc/{,1/}net/{tcp,tcp6}", keep=filters.listening, reads=8 * MIB),
        *(
            row._replace(most=2 * MIB, tail=True)
            for row in allowed("{,run/nvidia/driver/}var/log/fabricmanager.log", reads=2 * MIB)
        ),
        *present(
            "run/{nvidia-persistenced,nvidia-fabricmanager}/socket",
            "{tmp/nvidia-mps,run/nvidia/mps/*/pipe,run/nvidia/mps/*/*/pipe}/control",
            "etc/systemd/system/*.wants/{nvidia-*,dcgm}.service",
            "sys/class/infiniband_mad/*",
        ),
    ),
}
"""Area -> its files. Each area is read by a thread of its own: a wedged driver may block every reader of its files."""
