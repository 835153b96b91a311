"""The device files that programs and containers open."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.container_devices import device_injection, runtime_config
from gpuwatch.diagnose.checks.driver_origin import driver_roots, is_vgpu_host, loads_on_first_use
from gpuwatch.diagnose.checks.links import is_wanted
from gpuwatch.diagnose.host.driver_files import DeviceNodes
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.host.machine import ProcessLimits
from gpuwatch.model.text import shell_word

_NVIDIA, _CONTROL_MINOR = 195, 255
_FOR_ALL = 0o666
_MODE_PARAMETER = "438"  # NVreg_DeviceFileMode=0666
_RDMA = ("mlx5_ib", "mlx4_ib", "efa", "irdma", "bnxt_re", "ib_core")
_LEAST = 1 << 30
_DEV_NOT_READ = "not read: this container has a /dev of its own"


def _is_host_dev(context: CheckContext) -> bool:
    """Whether /dev is the host's: where the host's root cannot be read, /dev may be a container's own."""
    return context.facts.driver_roots is not None


def _wanted(nodes: DeviceNodes, *, cuda: bool = True) -> dict[str, tuple[int | None, int]]:
    """Name -> major and minor; the kernel assigns nvidia-uvm's when it is loaded."""
    uvm = nodes.majors.get("nvidia-uvm")
    unified = {"nvidia-uvm": (uvm, 0), "nvidia-uvm-tools": (uvm, 1)} if cuda else {}
    control = {"nvidiactl": (_NVIDIA, _CONTROL_MINOR), **unified}
    return control | {f"nvidia{minor}": (_NVIDIA, minor) for minor in sorted(nodes.gpus.values())}


def check_files(context: CheckContext) -> CheckVerdict:
    nodes = context.facts.nodes or DeviceNodes()
    wanted = _wanted(nodes, cuda=not is_vgpu_host(context))
    missing = [name for name in wanted if name not in nodes.files]
    if missing:
        return _missing(context, missing)
    if context.facts.plain:
        return passed(f"{len(wanted)} device files")
    wrong: dict[str, str] = {}  # files of another driver or of none: left from before the module was loaded again
    for name, (major, minor) in wanted.items():
        file = nodes.files[name]
        if file.major is None:
            wrong[f"/dev/{name}"] = "is no device file"
        elif major is not None and (file.major, file.minor) != (major, minor):
            wrong[f"/dev/{name}"] = f"is {file.major}:{file.minor}, the driver is {major}:{minor}"
    if wrong:
        name, problem = next(iter(wrong.items()))
        return failed(f"{name} {problem}", wrong)
    shut = {name: nodes.files[name].mode for name in wanted if nodes.files[name].mode & _FOR_ALL != _FOR_ALL}
    params = context.facts.kernel.params if context.facts.kernel else {}
    is_restricted = params.get("DeviceFileMode", _MODE_PARAMETER) != _MODE_PARAMETER  # on purpose, by the site
    if shut and not is_restricted:
        name, mode = next(iter(shut.items()))
        modes = {f"/dev/{name}": f"mode {mode:04o}" for name, mode in shut.items()}
        return warned(f"/dev/{name} is not open to all users (mode {mode:04o})", modes)
    return passed(f"{len(wanted)} device files")


def _missing(context: CheckContext, names: list[str]) -> CheckVerdict:
    elsewhere = [root.path for root in driver_roots(context) if root.path != "/" and root.devices]
    if not _is_host_dev(context):
        return skipped(_DEV_NOT_READ)
    if "nvidiactl" in names and elsewhere:
        return passed(f"in {elsewhere[0]}/dev, of the driver container")
    message = f"{', '.join(f'/dev/{name}' for name in names)} missing"
    if loads_on_first_use(context):
        return passed(f"{message}: nvidia-modprobe makes them when a program first asks")
    return failed(message, {f"/dev/{name}": "missing" for name in names})


def check_links(context: CheckContext) -> CheckVerdict:
    """Where there are no links at all, T05 judges whether that is a danger."""
    nodes, config = context.facts.nodes or DeviceNodes(), runtime_config(context.facts)
    if config is None or config.systemd_cgroup is not True:
        return skipped("no container runtime whose cgroups are made by systemd")
    if device_injection(context.facts, config) == "cdi":
        return skipped("containers get their devices by CDI and need no links")
    if not _is_host_dev(context):
        return skipped(_DEV_NOT_READ)
    if not nodes.char_links:
        return skipped("no links at all, see T05")
    numbers = {f"{major}:{minor}": name for name, (major, minor) in _wanted(nodes).items() if major is not None}
    missing = {number: name for number, name in numbers.items() if number not in nodes.char_links}
    if missing:
        number, name = next(iter(missing.items()))
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        evidence = {f"/dev/char/{number}": f"missing, for /dev/{name}" for number, name in missing.items()}
        return warned(f"/dev/char/{number} (/dev/{name}){more} is missing", evidence)
    return passed(f"{len(nodes.char_links)} links")


def check_mig_capabilities(context: CheckContext) -> CheckVerdict:
    nodes = context.facts.nodes or DeviceNodes()
    instances = {path: minor for path, minor in nodes.capabilities.items() if path.startswith("gpu")}
    if not instances:
        return skipped("no MIG instance")
    missing = {
        path: f"/dev/nvidia-caps/nvidia-cap{minor}"
        for path, minor in instances.items()
        if f"nvidia-caps/nvidia-cap{minor}" not in nodes.files
    }
    elsewhere = [root.path for root in driver_roots(context) if root.path != "/" and root.devices]
    if missing and not _is_host_dev(context):
        return skipped(_DEV_NOT_READ)
    if missing and elsewhere and "nvidiactl" not in nodes.files:
        return skipped(f"not read: the device files are in {elsewhere[0]}/dev, of the driver container")
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        message = f"{next(iter(missing.values()))}{more} missing: MIG instances cannot be used"
        made = tuple(f"nvidia-modprobe -f {shell_word(f'/proc/driver/nvidia/capabilities/{path}')}" for path in missing)
        return failed(message, missing, commands=(*made, "ls -l /dev/nvidia-caps"))
    return passed(f"{len(instances)} files")


def check_limits(context: CheckContext) -> CheckVerdict:
    limits, kernel = context.facts.limits, context.facts.kernel
    rdma = [name for name in _RDMA if kernel and name in (kernel.modules or {})]
    if not rdma or limits is None:
        return skipped("no RDMA adapter")
    if limits.shm is not None and _is_host_dev(context) and limits.shm < _LEAST:
        return warned(
            f"shared memory has {limits.shm >> 20} MiB: NCCL falls back or fails",
            {"rdma": rdma[0]},
            remedy="Mount /dev/shm larger on the host; in pods use an emptyDir with medium: Memory at /dev/shm.",
            commands=("mount -o remount,size=50% /dev/shm",),
        )
    return _locked(context, limits, rdma)


def _locked(context: CheckContext, limits: ProcessLimits, rdma: list[str]) -> CheckVerdict:
    if limits.memlock is None:
        return passed("memlock is unlimited")
    if limits.memlock_of == "self":
        return skipped("not read: the limits of a container runtime")
    if limits.memlock >= _LEAST:
        return passed(f"memlock is {limits.memlock >> 30} GiB")
    low = f"memlock of {limits.memlock_of} is {limits.memlock >> 10} KiB"
    if context.facts.kubelet and context.facts.kubelet.present:
        return passed(f"{low}; pods that use RDMA need the capability IPC_LOCK, for which there is no limit")
    adapters = context.facts.services.adapters if context.facts.services else None
    is_unused = adapters is not None and not is_wanted([a for a in adapters if not a.manages_switches])
    if is_unused and "efa" not in rdma:
        return passed(f"{low}; nothing says that RDMA is wanted")
    return warned(f"{low}: RDMA cannot pin memory", {"of": limits.memlock_of, "rdma": rdma[0]})


DEVICES: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "V01", CheckStage.DEVICES, "the device files are there",
        how="/dev/nvidiactl, nvidia-uvm, nvidia-uvm-tools and nvidiaN, with the majors of /proc/devices",
        remedy="Remove files with wrong numbers and make them again. Containers keep their old files: restart those "
        "that use GPUs, first the device plugin. With the GPU operator: delete this node's driver pod.",
        commands=("rm -f /dev/nvidia-uvm /dev/nvidia-uvm-tools",
                  "nvidia-modprobe -u -c=0",
                  "nvidia-smi",
                  "ls -l /dev/nvidia*"),
        judge=check_files, needs=("D01", "D02"), reads=("nodes",),
    ),
    DiagnosticCheck(
        "V02", CheckStage.DEVICES, "every device file has its link in /dev/char",
        how="/dev/char/195:* and those of nvidia-uvm, where a runtime has its cgroups made by systemd",
        remedy="After systemctl daemon-reload containers lose devices without a link: `Failed to initialize NVML: "
        "Unknown Error`. Make the links, by a udev rule when the driver is loaded, or use CDI.",
        commands=("nvidia-ctk system create-dev-char-symlinks --create-all",),
        judge=check_links, needs=("V01",), reads=("nodes", "runtime"),
    ),
    DiagnosticCheck(
        "V03", CheckStage.DEVICES, "every MIG instance has its capability files",
        how="/proc/driver/nvidia/capabilities against /dev/nvidia-caps",
        remedy="Make them, then restart the device plugin. With the GPU operator: restart this node's toolkit pod.",
        commands=("nvidia-modprobe -f /proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "ls -l /dev/nvidia-caps"),
        judge=check_mig_capabilities, needs=("D01",), reads=("nodes",),
    ),
    DiagnosticCheck(
        "V04", CheckStage.DEVICES, "limits allow RDMA and NCCL",
        how="locked memory allowed to the container runtime's process, size of /dev/shm; only where RDMA is",
        remedy="Containers inherit their runtime's limit. Set LimitMEMLOCK=infinity in its systemd unit and restart "
        "it; for logins set memlock in /etc/security/limits.conf.",
        commands=("systemctl edit containerd  # [Service] LimitMEMLOCK=infinity", "systemctl restart containerd"),
        judge=check_limits, reads=("limits", "kernel"),
    ),
)  # fmt: skip
