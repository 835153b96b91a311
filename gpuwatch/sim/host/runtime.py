"""Container runtime, toolkit, CDI and kubelet files of the simulated host, and status files of the GPU operator.

A node with driver and container toolkit from packages, as NVIDIA's images for servers have it: containerd 2 with the
nvidia runtime as its default and CDI, a kubelet, and the GPU operator for everything above.
"""

import msgspec

from gpuwatch.diagnose.host.kubelet_files import sealed
from gpuwatch.sim.host import Files, Symlink
from gpuwatch.sim.host.cluster import capacity, has_kubelet
from gpuwatch.sim.host.machine import LIBRARIES
from gpuwatch.sim.host.services import services
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.node.pods import DOMAIN, allocatable
from gpuwatch.sim.surroundings.proctree import SimProcess

TOOLKIT = "1.18.1-1"
CONTAINERD = "2.1.5-1~ubuntu.24.04~noble"
PACKAGES = "var/lib/dpkg/status"
PROGRAMS = (
    "containerd", "kubelet", "nvidia-cdi-hook", "nvidia-container-runtime", "nvidia-container-runtime-hook",
    "nvidia-container-toolkit", "nvidia-ctk", "runc",
)  # fmt: skip
KUBELET = "var/lib/kubelet"
DOCKER, JOBS = "var/lib/docker", "run/gpuwatch-jobs"
_MOUNT_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
_LIBRARIES = ("libcuda.so", "libnvidia-ml.so", "libnvidia-ptxjitcompiler.so")
_HOOK = "/usr/bin/nvidia-cdi-hook"

_CONTAINERD_CONFIG = """\
version = 3
root = '/var/lib/containerd'
state = '/run/containerd'
imports = ['/etc/containerd/conf.d/*.toml']

[grpc]
  address = '/run/containerd/containerd.sock'

[plugins]
  [plugins.'io.containerd.cri.v1.runtime']
    enable_cdi = true
    cdi_spec_dirs = ['/etc/cdi', '/var/run/cdi']

    [plugins.'io.containerd.cri.v1.runtime'.containerd]
      default_runtime_name = 'runc'

      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes]
        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
          runtime_type = 'io.containerd.runc.v2'

          [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
            BinaryName = ''
            SystemdCgroup = true
"""

_NVIDIA_RUNTIME = """\
version = 3

[plugins]
  [plugins."io.containerd.cri.v1.runtime"]
    [plugins."io.containerd.cri.v1.runtime".containerd]
      default_runtime_name = "nvidia"

      [plugins."io.containerd.cri.v1.runtime".containerd.runtimes]
        [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia]
          runtime_type = "io.containerd.runc.v2"

          [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
            BinaryName = "/usr/bin/nvidia-container-runtime"
            SystemdCgroup = true
"""

_TOOLKIT_CONFIG = """\
#accept-nvidia-visible-devices-as-volume-mounts = false
#accept-nvidia-visible-devices-envvar-when-unprivileged = true
disable-require = false
supported-driver-capabilities = "compat32,compute,display,graphics,ngx,utility,video"

[nvidia-container-cli]
environment = []
ldconfig = "@/sbin/ldconfig.real"
load-kmods = true
#no-cgroups = false

[nvidia-container-runtime]
log-level = "info"
mode = "auto"
runtimes = ["runc", "crun"]
"""

_KUBELET_CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
cgroupDriver: systemd
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
"""


def runtime(node: SimNode) -> Files:
    """The files."""
    # dpkg keeps all packages in one file, the fabric manager's among them
    packages = str(services(node).get(PACKAGES, "")) + "".join(
        f"Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\n"
        for name, version in (("containerd.io", CONTAINERD), ("nvidia-container-toolkit", TOOLKIT))
    )
    files: dict[str, str | Symlink] = {
        **{f"usr/bin/{name}": "\x7fELF" for name in PROGRAMS},
        PACKAGES: packages,
        "etc/containerd/config.toml": _CONTAINERD_CONFIG,
        "etc/containerd/conf.d/99-nvidia.toml": _NVIDIA_RUNTIME,
        "etc/nvidia-container-runtime/config.toml": _TOOLKIT_CONFIG,
        "var/run": Symlink("../run"),
        "run/cdi/nvidia.yaml": _cdi(node),
        **_work(node),
    }
    return {**files, **_kubelet(node)} if has_kubelet(node) else files


def _cdi(node: SimNode) -> str:
    """The CDI specification as nvidia-cdi-refresh.service writes it with `nvidia-ctk cdi generate`."""
    libraries = [f"/{LIBRARIES}/{name}.{node.driver}" for name in _LIBRARIES]
    common = {
        "deviceNodes": [{"path": f"/dev/{name}"} for name in ("nvidia-uvm", "nvidia-uvm-tools", "nvidiactl")],
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "hooks": [
            {
                "args": ["nvidia-cdi-hook", "update-ldcache", "--folder", f"/{LIBRARIES}"],
                "hookName": "createContainer",
                "path": _HOOK,
            }
        ],
        "mounts": [
            {"containerPath": path, "hostPath": path, "options": _MOUNT_OPTIONS}
            for path in (*libraries, "/usr/bin/nvidia-smi")
        ],
    }
    devices = [
        {"containerEdits": {"deviceNodes": [{"path": f"/dev/nvidia{gpu.index}"}]}, "name": name}
        for gpu in node.gpus
        if gpu.attached
        for number, unit in enumerate(gpu.units)
        for name in (f"{gpu.index}:{number}" if unit.profile else str(gpu.index), unit.uuid)
    ]
    spec = {"cdiVersion": "0.5.0", "containerEdits": common, "devices": devices, "kind": f"{DOMAIN}/gpu"}
    return "---\n" + msgspec.yaml.encode(spec).decode()


def _work(node: SimNode) -> Files:
    """Jobs as Slurm's prolog writes them, and of Docker's forty or so members of a container those that are read."""
    files: dict[str, str | Symlink] = {}
    for each in node.workloads.values():
        if each.slurm and each.slurm.isdigit():
            files[f"{JOBS}/{each.slurm}"] = f"account={each.account or ''}\npartition={each.partition or ''}\n"
        if (known := each.docker) is not None:
            compose = {f"com.docker.compose.{name}": getattr(known, name) or "" for name in ("project", "service")}
            config = {"Env": ["HF_TOKEN=secret"], "Image": known.image or "", "Labels": compose}
            state = msgspec.json.encode({"Config": config, "Name": f"/{known.name}"}).decode()
            files[f"{DOCKER}/containers/{SimProcess(pid=0, container=known).container_id}/config.v2.json"] = state
    return files


def _kubelet(node: SimNode) -> Files:
    """The kubelet's files, and those that nvidia-operator-validator writes, one after the other."""
    plugins = [resource.partition("/")[2] for resource in capacity(node)] or ["gpu"]
    registered = {each.resource: each.device_ids for each in allocatable(node)}
    answers = {} if node.kubelet == "absent" else {f"{KUBELET}/pod-resources/kubelet.sock": ""}
    roots = {"IS_HOST_DRIVER": "true", "NVIDIA_DRIVER_ROOT": "/", "DRIVER_ROOT_CTR_PATH": "/host"}
    driver = "".join(f"{name}={value}\n" for name, value in roots.items())
    ready = {"driver-ready": driver, "toolkit-ready": "", "cuda-ready": "", "plugin-ready": ""}
    return {
        f"{KUBELET}/config.yaml": _KUBELET_CONFIG,
        f"{KUBELET}/device-plugins/kubelet.sock": "",
        f"{KUBELET}/device-plugins/kubelet_internal_checkpoint": sealed(registered),
        **{f"{KUBELET}/device-plugins/nvidia-{name}.sock": "" for name in plugins},
        **answers,
        **{f"run/nvidia/validations/{name}": text for name, text in ready.items()},
    }
