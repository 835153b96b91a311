"""How each GPU is set up, what is left over on it, and what its driver asks for."""

from collections.abc import Iterator

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, passed, skipped
from gpuwatch.diagnose.checks.per_gpu import WORKSTATION_BRANDS, agent_verdict, count_gpus, no_reading, verdict_on_gpus
from gpuwatch.diagnose.checks.remedies import CONTACT_SUPPORT, RESET_GPU
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.view import View


def check_persistence(context: CheckContext) -> CheckVerdict:
    servers = [
        gpu for gpu in context.gpus if gpu.identity.brand not in WORKSTATION_BRANDS and gpu.persistence_mode is not None
    ]
    if not servers:
        return no_reading(context, "no GPU of a data center")
    if context.facts.runtime and context.facts.runtime.gke:
        return skipped("Google's nodes: the device plugin keeps the GPUs open, and the image cannot be changed")
    services = context.facts.services
    daemon = services.runs("nvidia-persistenced") if services else None
    off = {gpu.identity.index: "persistence mode is off" for gpu in servers if not gpu.persistence_mode}
    if off and daemon is None:
        return skipped("the mode is off; whether nvidia-persistenced runs instead cannot be seen")
    if off and not daemon:
        return verdict_on_gpus(off)
    if off:
        return passed("nvidia-persistenced runs; the mode is off (does it run with --no-persistence-mode?)")
    return passed("nvidia-persistenced runs" if daemon else "on")


def check_compute_mode(context: CheckContext) -> CheckVerdict:
    if not any(gpu.compute_mode for gpu in context.gpus):
        return no_reading(context, "no GPU reports its compute mode")
    modes = {gpu.identity.index: gpu.compute_mode for gpu in context.gpus}
    forbidden = [index for index, mode in modes.items() if mode == "prohibited"]
    if forbidden:
        problem = "compute mode PROHIBITED: no work may use it"
        return verdict_on_gpus(dict.fromkeys(forbidden, problem), fatal=True)
    problem = "compute mode EXCLUSIVE_PROCESS: a second process or pod cannot use it"
    exclusive = dict.fromkeys((i for i, m in modes.items() if m in ("exclusive_process", "exclusive_thread")), problem)
    services = context.facts.services
    if exclusive and services and services.runs("nvidia-cuda-mps-control"):
        return passed("EXCLUSIVE_PROCESS for the MPS daemon, which runs")
    return verdict_on_gpus(exclusive) if exclusive else passed("DEFAULT")


def check_left_over(context: CheckContext) -> CheckVerdict:
    view = context.facts.view
    if view is None or not any(gpu.memory.used is not None for gpu in context.gpus):
        return no_reading(context, "no GPU reports who uses its memory")
    if found := agent_verdict(context, "zombie_memory"):
        return found
    dead = {
        gpu.identity.index: text for gpu in context.gpus if (text := "; ".join(_ended_processes(context, view, gpu)))
    }
    return verdict_on_gpus(dead) if dead else passed("all memory in use belongs to processes")


def _ended_processes(context: CheckContext, view: View, gpu: Gpu) -> Iterator[str]:
    """Processes that hold memory in both samples and that /proc or the API server no longer has."""
    before, services = context.facts.earlier, context.facts.services
    owners = {owner.pid: owner for owner in view.owners}
    if before is None or not owners or services is None or services.processes is None:
        return  # in another pid namespace, a missing process proves nothing
    pods = context.facts.cluster.pods if context.facts.cluster else None
    living = {pod.uid for pod in pods} if pods is not None else None
    earlier = {process.pid for other in before.snapshot.gpus for process in other.processes or ()}
    for process in gpu.processes or ():
        owner = owners.get(process.pid)
        held = f"{(process.used_memory or 0) / 2**30:.1f} GiB are held by process {process.pid}"
        if process.pid not in earlier:
            continue
        if owner is None:
            yield f"{held}, which is gone"
        elif owner.pod_uid and owner.workload is None and living is not None and owner.pod_uid not in living:
            yield f"{held} of pod {owner.pod_uid}, which is gone"


def check_inforom(context: CheckContext) -> CheckVerdict:
    if not context.gpus:
        return no_reading(context, "")
    return agent_verdict(context, "inforom") or passed(count_gpus(len(context.gpus)))


def check_asked(context: CheckContext) -> CheckVerdict:
    if all(gpu.recovery_action is None for gpu in context.gpus):
        return no_reading(context, "this driver does not report it (550 and newer do)")
    return agent_verdict(context, "recovery_action", "recovery_advised") or passed("nothing")


def check_licences(context: CheckContext) -> CheckVerdict:
    count = sum(len(gpu.vgpus) for gpu in context.gpus)
    if not count:
        return no_reading(context, "no vGPU")
    bad: dict[int, str] = {}
    for gpu in context.gpus:
        without = [vgpu.vm_name or vgpu.vm or vgpu.uuid for vgpu in gpu.vgpus if vgpu.licensed is False]
        if without:
            bad[gpu.identity.index] = f"no licence for the vGPU of {', '.join(without)}"
    return verdict_on_gpus(bad) if bad else passed(f"{count} licensed")


def check_vbios(context: CheckContext) -> CheckVerdict:
    versions: dict[str | None, dict[str, list[int]]] = {}
    for identity in (gpu.identity for gpu in context.gpus):
        if identity.vbios and identity.brand not in WORKSTATION_BRANDS:  # workstation boards have that of their maker
            versions.setdefault(identity.name, {}).setdefault(identity.vbios, []).append(identity.index)
    if not any(sum(map(len, found.values())) > 1 for found in versions.values()):
        return no_reading(context, "there are not two GPUs of one model")
    bad: dict[int, str] = {}
    for found in versions.values():
        usual = max(found, key=lambda version: len(found[version]))
        for version, indexes in found.items():
            if version != usual:
                bad |= dict.fromkeys(indexes, f"VBIOS {version}, others of its model have {usual}")
    bad = dict(sorted(bad.items()))
    return (
        verdict_on_gpus(bad) if bad else passed(", ".join(version for found in versions.values() for version in found))
    )


MODES: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "G10", CheckStage.HEALTH, "the driver stays up while no process uses a GPU",
        how="nvmlDeviceGetPersistenceMode, process nvidia-persistenced; GPUs of data centers only",
        remedy="Work starts slowly, and clock and limit settings are lost whenever the last process ends. Start "
        "nvidia-persistenced, without the --no-persistence-mode of Ubuntu's unit; with the GPU operator the "
        "driver pod does. Until then: nvidia-smi -pm 1.",
        commands=("systemctl enable --now nvidia-persistenced", "nvidia-smi -pm 1"),
        judge=check_persistence, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G11", CheckStage.HEALTH, "processes may share GPUs",
        how="nvmlDeviceGetComputeMode; EXCLUSIVE_PROCESS is right where MPS runs",
        remedy="Other programs get CUDA error 46, all CUDA-capable devices are busy or unavailable. Set the default "
        "mode, unless one process per GPU is intended; find out what sets it at boot.",
        commands=("nvidia-smi -i {gpu} -c DEFAULT",),
        judge=check_compute_mode, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G12", CheckStage.HEALTH, "no memory is held by what is gone",
        how="nvmlDeviceGetMemoryInfo and nvmlDeviceGetComputeRunningProcesses against /proc, kubelet and pods of the "
        "node",
        remedy="See who has the GPU open and end it (not with -9 while it is inside the driver: state D). If no "
        "process has, the driver itself keeps the memory: only a reset frees it. " + RESET_GPU.text,
        commands=("nvidia-smi -i {gpu}", "fuser -v /dev/nvidia*", *RESET_GPU.commands),
        judge=check_left_over, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G13", CheckStage.HEALTH, "the infoROM can be read",
        how="NVML_ERROR_CORRUPTED_INFOROM of any call, XIDs 93 and 125",
        remedy="It keeps serial number, ECC mode and error history. " + CONTACT_SUPPORT.text,
        commands=("nvidia-smi -i {gpu} -q -d PAGE_RETIREMENT,ECC", *CONTACT_SUPPORT.commands),
        judge=check_inforom, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G14", CheckStage.HEALTH, "the driver asks for no repair",
        how="NVML_FI_DEV_GET_GPU_RECOVERY_ACTION (driver 570 and newer), before that the two reset status fields",
        remedy="Do what it asks for. " + RESET_GPU.text,
        commands=RESET_GPU.commands,
        judge=check_asked, needs=("N04", "G03", "G05"), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G15", CheckStage.HEALTH, "vGPUs have their licences",
        how="nvmlVgpuInstanceGetLicenseStatus",
        remedy="The virtual machine gets less and less of the GPU. Check its gridd.conf, its client configuration "
        "token and its way to the licence server: journalctl -u nvidia-gridd.",
        commands=("nvidia-smi vgpu -q",),
        judge=check_licences, needs=("N04",), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "G16", CheckStage.HEALTH, "GPUs of one model have one VBIOS",
        how="nvmlDeviceGetVbiosVersion",
        remedy="A board was replaced, or a firmware update stopped half way. Power limits and fixes differ by VBIOS: "
        "bring all to the vendor's version.",
        commands=("nvidia-smi --query-gpu=index,name,vbios_version --format=csv",),
        judge=check_vbios, needs=("N04",), reads=("view",), each=True,
    ),
)  # fmt: skip
"""Modes first, then what is left over or asked for."""
