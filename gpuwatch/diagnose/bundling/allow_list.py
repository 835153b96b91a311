"""Which files of the host go into a bundle, and what is kept of each: nothing that is not named here is taken."""

import re
from itertools import product
from typing import NamedTuple

from gpuwatch.diagnose.bundling import keep
from gpuwatch.diagnose.bundling import keep_documents as documents
from gpuwatch.diagnose.bundling.keep import Keep

MIB = 1 << 20


class Taken(NamedTuple):
    """Files below the host's root by pattern. `keep` None: that they are there is all that matters, they are not even
    opened. `reads`: so much of each is read, `most`: so much of it is kept; `tail`: of its end.
    """

    pattern: str
    keep: Keep | None = keep.whole
    reads: int = MIB
    most: int = MIB
    tail: bool = False
    binary: bool = False


def spread(pattern: str) -> list[str]:
    """`etc/{cdi,cni}/*` -> `etc/cdi/*`, `etc/cni/*`."""
    parts = [part[1:-1].split(",") if part[:1] == "{" else [part] for part in re.split(r"(\{[^}]*\})", pattern)]
    return ["".join(chosen) for chosen in product(*parts)]


def _each(pattern: str, kept: Keep | None = keep.whole, reads: int = MIB) -> tuple[Taken, ...]:
    return tuple(Taken(each, kept, reads) for each in spread(pattern))


def _there(*patterns: str) -> tuple[Taken, ...]:
    return tuple(row for pattern in patterns for row in _each(pattern, None))


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

AREAS: dict[str, tuple[Taken, ...]] = {
    "kernel": (
        Taken("proc/cmdline", keep.cmdline),
        *_each("proc/{modules,devices,meminfo,sys/kernel/osrelease}"),
        *_each("etc/{os-release,hostname}"),
        *_each("sys/module/module/parameters/sig_enforce"),
        Taken("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", most=16, binary=True),
        *_each("{etc,run,usr/local/lib,usr/lib,lib}/modprobe.d/*.conf", keep.modprobe),
        *_each("lib/modules/*/modules.dep", keep.nvidia_lines, 8 * MIB),
        *_there("lib/modules/*/build", "var/lib/dkms/nvidia/[0-9]*"),
    ),
    "driver": (*_each("proc/driver/nvidia/version"), *_each("sys/module/nvidia*/version")),
    "driver parameters": _each("proc/driver/nvidia/{params,registry}"),
    "driver GPUs": _each("proc/driver/nvidia/gpus/*/{information,power}"),
    "driver capabilities": _each("proc/driver/nvidia/capabilities/{,*/,*/*/,*/*/*/,*/*/*/*/}*"),
    "device files": _there("dev/{nvidia*,gdrdrv,infiniband/*,nvidia-caps/*,nvidia-caps-imex-channels/*}"),
    "driver files": _there(
        f"{_DRIVERS}{_LIB}/lib{{nvidia-ml,cuda,nvidia-ptxjitcompiler}}.so*",
        f"{_DRIVERS}{_BIN}/nvidia-{{smi,modprobe}}",
        f"{_DRIVERS}{{lib/,usr/lib/,}}firmware/nvidia/[0-9]*/gsp*.bin*",
        f"{_DRIVERS}dev/nvidiactl",
    ),
    "container runtime": (
        *_each(_CONTAINERD, documents.as_toml(documents.CONTAINERD)),
        *_each("etc/crio/{crio.conf,crio.conf.d/*}", documents.as_toml(documents.CRIO)),
        *_each("etc/docker/daemon.json", documents.as_json(documents.DOCKER)),
        *_each(
            "{etc,usr/local/nvidia/toolkit/.config}/nvidia-container-runtime/config.toml",
            documents.as_toml(documents.TOOLKIT),
        ),
        *_there(
            "{usr/share,run,etc}/containers/oci/hooks.d/*nvidia*.json",
            "{usr/bin,usr/local/bin,usr/local/nvidia/toolkit,opt/nvidia/toolkit}/nvidia-c*",
            f"{_BIN}/{{containerd,crio,dockerd,podman,runc,crun,kubelet}}",
            "home/kubernetes/bin/nvidia",
        ),
    ),
    "packages": _each("var/lib/dpkg/status", keep.packages, 32 * MIB),
    "CDI": _each("{etc,var/run}/cdi/*", documents.as_yaml(documents.CDI)),
    "kubelet": (
        *_each(f"{_KUBELET}/config.yaml", documents.as_yaml(documents.KUBELET)),
        *_each(f"{_KUBELET}/kubeadm-flags.env", keep.runtime_flag),
        *_each(f"{_KUBELET}/device-plugins/kubelet_internal_checkpoint", documents.as_json(documents.CHECKPOINT)),
        *_there(f"{_KUBELET}/{{device-plugins,device-plugins/*.sock,pods,pod-resources/kubelet.sock}}"),
        *_there(f"{_KUBELET}/plugins_registry/*nvidia*"),
    ),
    "operator": (
        *_each("run/nvidia/validations/*", keep.assignments),
        *_there("run/mellanox/drivers", "run/mellanox/drivers/.driver-ready"),
    ),
    "services": (
        *_each("proc/{,1/}net/{tcp,tcp6}", keep.listening, 8 * MIB),
        *(
            Taken(log, reads=2 * MIB, most=2 * MIB, tail=True)
            for log in spread("{,run/nvidia/driver/}var/log/fabricmanager.log")
        ),
        *_there(
            "run/{nvidia-persistenced,nvidia-fabricmanager}/socket",
            "{tmp/nvidia-mps,run/nvidia/mps/*/pipe,run/nvidia/mps/*/*/pipe}/control",
            "etc/systemd/system/*.wants/{nvidia-*,dcgm}.service",
            "sys/class/infiniband_mad/*",
        ),
    ),
}
"""Area -> its files. Each area is read by a thread of its own: a wedged driver may keep whoever opens its files."""
