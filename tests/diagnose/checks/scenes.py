"""Broken nodes as they are found at night: one cause, and everything it drags along, on every layer at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from gpuwatch.diagnose.active.results import Active, DeviceRun
from gpuwatch.diagnose.model import CheckStatus
from gpuwatch.kube.objects import TAINT, Taint
from gpuwatch.model.snapshot import SourceStatus
from gpuwatch.sim.host.machine import RELEASE
from tests.diagnose.hosts import Host

NOT_LOADED, LIBRARY_NOT_FOUND, MISMATCH = 9, 12, 18
"""nvmlReturn_t"""

NEW_KERNEL = "6.8.0-60-generic"
MODULES = "proc/modules"


class Scene(NamedTuple):
    """`first`: the check that names the cause; `blocked`: checks that must say that it blocks them; `also`: what
    else is wrong by itself. `result` WARN: the node works on.
    """

    name: str
    breaks: tuple[Callable[[Host], None], ...]
    first: str
    blocked: str = ""
    also: str = ""
    result: CheckStatus = CheckStatus.FAIL
    node: dict[str, Any] = {}
    active: bool = False


def no_nvml(code: int, reason: str) -> Callable[[Host], None]:
    """The reader was told so, and sees no GPU."""

    def breaks(host: Host) -> None:
        assert host.view is not None
        sources = tuple(
            SourceStatus(name="nvml", up=False, reason=f"nvmlInit: {reason}", code=code, failures=1)
            if source.name == "nvml"
            else source
            for source in host.view.snapshot.sources
        )
        snapshot = replace(
            host.view.snapshot, driver=None, gpus=(), statuses=(), sources=sources, bus=None, expected_gpus=None
        )
        judgement = replace(host.view.judgement, gpus={}, findings=())
        attribution = type(host.view.attribution)()
        host.view = host.earlier = replace(
            host.view, snapshot=snapshot, judgement=judgement, attribution=attribution, owners=(), xids=()
        )

    return breaks


def unloaded(host: Host) -> None:
    """The module is not there: no device files, no daemons that hold it, no plugin, no devices."""
    host.node.driver_up = False
    host.show()
    no_nvml(NOT_LOADED, "Driver Not Loaded")(host)
    no_plugin(host)


def no_plugin(host: Host) -> None:
    """The device plugin's pod does not start, hence no devices; those of the operator wait."""
    host.remove("var/lib/kubelet/device-plugins/nvidia-gpu.sock")
    for name in ("cuda-ready", "plugin-ready"):
        host.remove(f"run/nvidia/validations/{name}")
    assert host.cluster is not None
    pods = tuple(replace(pod, ready=pod.app == "node-feature-discovery-worker") for pod in host.cluster.pods or ())
    of_node(host, capacity={"nvidia.com/gpu": 0}, allocatable={"nvidia.com/gpu": 0})
    host.cluster = replace(host.cluster, pods=pods, policy_state="notReady")


def of_node(host: Host, **changes: Any) -> None:
    """Change the Node object; `labels` and `annotations` are added to its own."""
    assert host.cluster is not None
    node = host.cluster.node
    merged = {
        name: getattr(node, name) | value if name in ("labels", "annotations") else value
        for name, value in changes.items()
    }
    host.cluster = replace(host.cluster, node=replace(node, **merged))


def plugin_configs(*names: str) -> Callable[[Host], None]:
    """The configurations that the device plugin's ConfigMap has."""

    def breaks(host: Host) -> None:
        assert host.cluster is not None
        host.cluster = replace(host.cluster, plugin_configs=names)

    return breaks


def labelled(**labels: str) -> Callable[[Host], None]:
    """Labels of nvidia.com/; `mig_config` stands for mig.config, `__` for a dash."""
    named = {"nvidia.com/" + key.replace("__", "-").replace("_", "."): value for key, value in labels.items()}
    return lambda host: of_node(host, labels=named)


def devices(capacity: int, allocatable: int) -> Callable[[Host], None]:
    """What the kubelet tells of nvidia.com/gpu."""
    return lambda host: of_node(
        host, capacity={"nvidia.com/gpu": capacity}, allocatable={"nvidia.com/gpu": allocatable}
    )


def without_module(name: str) -> Callable[[Host], None]:
    """It is not loaded."""

    def breaks(host: Host) -> None:
        lines = (host.root / MODULES).read_text().splitlines(keepends=True)
        host.write(MODULES, "".join(line for line in lines if line.split()[0] != name))

    return breaks


def with_module(name: str) -> Callable[[Host], None]:
    """It is loaded."""
    return lambda host: host.write(MODULES, (host.root / MODULES).read_text() + f"{name} 16384 0 - Live 0x0\n")


def gone(*paths: str) -> Callable[[Host], None]:
    """Files and folders that are not there."""

    def breaks(host: Host) -> None:
        for path in paths:
            host.remove(path)

    return breaks


def kernel_says(*texts: str) -> Callable[[Host], None]:
    """Lines at the end of the kernel log."""

    def breaks(host: Host) -> None:
        log = "gpuwatch/kernel.log"
        lines = "".join(f"[{2000 + at:12.6f}] {text}\n" for at, text in enumerate(texts))
        host.write(log, (host.root / log).read_text() + lines)

    return breaks


def upgraded_kernel(host: Host) -> None:
    """It runs a kernel for which nobody built the module."""
    host.write("proc/sys/kernel/osrelease", f"{NEW_KERNEL}\n")
    host.edit("proc/cmdline", RELEASE, NEW_KERNEL)
    host.write(f"lib/modules/{NEW_KERNEL}/modules.dep", "kernel/net/llc/llc.ko.zst:\n")


def never_installed(host: Host) -> None:
    """A fresh machine: no module for any kernel, no libraries."""
    host.remove(f"lib/modules/{RELEASE}/updates")
    host.write(f"lib/modules/{RELEASE}/modules.dep", "kernel/net/llc/llc.ko.zst:\n")
    host.remove("var/lib/dkms")
    no_libraries(host)


def no_libraries(host: Host) -> None:
    """Nothing of the driver's user space."""
    for file in (host.root / "usr/lib/x86_64-linux-gnu").glob("lib*"):
        file.unlink()
    host.remove("usr/bin/nvidia-smi")


def no_toolkit(host: Host) -> None:
    """Nothing of NVIDIA's container toolkit; the runtime's configuration was never touched."""
    for file in (host.root / "usr/bin").glob("nvidia-c*"):
        file.unlink()
    host.remove("run/nvidia/validations/toolkit-ready")
    host.remove("run/cdi")
    host.remove("etc/containerd/conf.d/99-nvidia.toml")


def updated_libraries(host: Host) -> None:
    """Packages were updated below the running module."""
    folder = host.root / "usr/lib/x86_64-linux-gnu"
    for file in sorted(folder.glob(f"*.so.{host.node.driver}")):
        name = file.name.removesuffix(f".{host.node.driver}")
        file.rename(folder / f"{name}.580.126.09")
        (folder / f"{name}.1").unlink()
        (folder / f"{name}.1").symlink_to(f"{name}.580.126.09")


def bound_to(driver: str, *indexes: int) -> Callable[[Host], None]:
    """Another driver has these GPUs; no index: all."""

    def breaks(host: Host) -> None:
        drivers = host.root / "sys/bus/pci/drivers"
        (drivers / driver).mkdir(parents=True, exist_ok=True)
        for gpu in host.node.gpus:
            if not indexes or gpu.index in indexes:
                link = host.root / f"sys/bus/pci/devices/{gpu.address}/driver"
                link.unlink(missing_ok=True)
                link.symlink_to(f"/sys/bus/pci/drivers/{driver}")

    return breaks


def wedged(*sections: str) -> Callable[[Host], None]:
    """No call of the driver returns; nor do reads of its files in these sections."""

    def breaks(host: Host) -> None:
        host.view = host.earlier = None
        host.view_failure = "hangs"
        host.unread |= {"view": "the driver did not answer within 2.5 s", "earlier": "the driver did not answer"}
        host.unread |= dict.fromkeys(sections, "did not answer within 2.5 s")

    return breaks


def fabric_manager(version: str | None) -> Callable[[Host], None]:
    """Another version of it is installed and fails to start, None: it was stopped; no GPU gets into the fabric."""

    def breaks(host: Host) -> None:
        if version:
            host.edit("var/lib/dpkg/status", host.node.driver, version)
            host.edit("var/log/fabricmanager.log", host.node.driver, version)
        host.remove("proc/1101")
        for index in range(len(host.node.gpus)):
            host.gpu(index, fabric={"state": 2})

    return breaks


def record(host: Host) -> None:
    """A clock cap that a tuner set which is no more."""
    setting = {
        "uuid": host.node.gpus[2].uuid,
        "knob": "locked_clocks",
        "original": None,
        "applied": [1.2e9],
        "boot_id": host.view.snapshot.host.boot_id if host.view else None,
        "driver": host.node.driver,
        "at": 1_789_999_000.0,
    }
    document = {"schema": 1, "content": {"actuation": {"settings": [setting]}}}
    host.write("var/lib/gpuwatch/tuner/actuation.json", msgspec.json.encode(document).decode())


def tainted(host: Host) -> None:
    """By gpuwatch, of which nobody knows why."""
    of_node(host, taints=(Taint(key=TAINT, value="xid_fatal", effect="NoSchedule"),))


def cuda(code: int, error: str) -> Callable[[Host], None]:
    """What a vector addition comes to on every GPU."""

    def breaks(host: Host) -> None:
        runs = (
            DeviceRun(test="vector_add", device=gpu.uuid, index=gpu.index, code=code or None, error=error)
            for gpu in host.node.gpus
        )
        host.active = Active(runs=tuple(runs))

    return breaks


def gpu(index: int, **changes: Any) -> Callable[[Host], None]:
    """Readings of one GPU."""
    return lambda host: host.gpu(index, **changes)


def edited(path: str, old: str, new: str) -> Callable[[Host], None]:
    """A file with another text."""
    return lambda host: host.edit(path, old, new)


def names_the_cause(root: Path, scene: Scene) -> None:
    """Demand of a diagnosis what the scene says."""
    host = Host(root, **scene.node)
    for breaks in scene.breaks:
        breaks(host)
    found = host.diagnose(active=scene.active)
    failed = {r.id: r.message for r in found.results if r.result is CheckStatus.FAIL}
    first = found.first
    assert first is not None
    assert (first.id, first.result) == (scene.first, scene.result), f"{first.id} {first.message}; {failed}"
    assert failed.keys() - {scene.first, *scene.also.split()} == set(), failed
    blocked = {id_: found.of(id_).blocked_by for id_ in scene.blocked.split()}
    assert blocked == dict.fromkeys(scene.blocked.split(), scene.first)
    assert first.remedy
