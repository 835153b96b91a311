"""The effect of each action on the machine, with the kernel log lines of current drivers."""

from collections.abc import Callable
from typing import Any, TypeVar

from gpuwatch.model.xid_catalogue import explain
from gpuwatch.sim.node import actions as a
from gpuwatch.sim.node.gpu import Faults, SimGpu
from gpuwatch.sim.node.machine import Machine

SINGLE_BIT, DOUBLE_BIT, XID, RETIREMENT, UNAVAILABLE, RECOVERY_ACTION = 0x1, 0x2, 0x8, 0x400, 0x4000, 0x8000
"""nvmlEventType* bits."""

MESSAGES = {
    8: "Channel 00000020",
    13: "Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address",
    31: "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ 0x73ac_1c000000. "
    "Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
    43: "Ch 00000008",
    45: "Ch 00000008",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer at physAddr 0x7fffa8860 "
    "partition 7, subpartition 1.",
    62: "00000a9f 00000a85 00000a72 00003786 00001d3e 000027d6 01013289 00000000",
    63: "Row Remapper: New row (0x0000000e9b9107e0) marked for remapping, reset gpu to activate.",
    64: "Row Remapper: All reserved rows for bank are already remapped",
    74: "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    92: "High single-bit ECC error rate",
    94: "Contained: SM (0x1). RST: No, D-RST: No",
    95: "Uncontained: LTC TAG (0x2,0x0). RST: Yes, D-RST: No",
    109: "Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x58005",
    119: "Timeout after 6s of waiting for RPC response from GPU{index} GSP! Expected function 76 (GSP_RM_CONTROL) "
    "(0x20801813 0x4c).",
    120: "GSP task timeout @ pc:0x4bf3c4, task: 1",
    140: "An uncorrectable ECC error detected (possible firmware handling failure) DRAM:0, LTC:0, MMU:0, PCIE:0",
    145: "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)",
}
"""XID -> the text after the owner, from logs of real machines."""

RECOVERY_WORDS = ("None", "GPU Reset Required", "Node Reboot Required", "Drain P2P", "Drain and Reset")
"""By NVML_GPU_RECOVERY_ACTION_*."""

Effect = Callable[[Machine, Any], None]
_Action = TypeVar("_Action", bound=a.NodeAction)

_MEMBERS: dict[type[a.NodeAction], Callable[[SimGpu, Any], tuple[object, dict[str, Any]]]] = {
    a.DelayCalls: lambda gpu, action: (gpu.faults, {"delay": action.delay}),
    a.RequireRepair: lambda gpu, action: (
        gpu.faults,
        {"channel_repair": action.channel, "tpc_repair": action.tpc, "unrepairable": action.unrepairable},
    ),
    a.CorruptInforom: lambda gpu, action: (gpu.faults, {"inforom_corrupt": True}),
    a.LeakMemory: lambda gpu, action: (gpu.faults, {"leaked_mib": action.mebibytes}),
    a.CapClock: lambda gpu, action: (gpu.faults, {"clock_cap": action.megahertz}),
    a.RequestMigChange: lambda gpu, action: (gpu.faults, {"mig_pending": True}),
    a.SetCooling: lambda gpu, action: (gpu.faults, {"ambient": action.ambient, "cooling": max(0.05, action.cooling)}),
    a.SetPowerBrake: lambda gpu, action: (gpu.faults, {"power_brake": action.engaged}),
    a.SetFabric: lambda gpu, action: (gpu.faults, {"fabric": (action.state, action.status, action.health)}),
    a.SetEccMode: lambda gpu, action: (gpu, {"ecc_pending": action.on}),
    a.SetComputeMode: lambda gpu, action: (gpu, {"compute_mode": action.mode}),
    a.SetPersistenceMode: lambda gpu, action: (gpu, {"persistence_mode": action.on}),
    a.SetPowerLimit: lambda gpu, action: (
        gpu,
        {"power_limit": min(max(action.watts, gpu.model.power_min), gpu.model.power_max)},
    ),
    a.LockClocks: lambda gpu, action: (
        gpu,
        {"locked_clocks": None if action.highest is None else (action.lowest, action.highest)},
    ),
}
"""Actions that only set members of a GPU or of its faults."""

EFFECTS: dict[type[a.NodeAction], Effect] = {
    a.WriteKernelLog: lambda machine, action: machine.log(action.line, facility=action.facility),
    a.StartWorkload: lambda machine, action: machine.start(action.workload),
    a.StopWorkload: lambda machine, action: machine.stop(action.name),
    a.RefuseInit: lambda machine, action: setattr(machine, "init_error", action.error),
    a.SetKubelet: lambda machine, action: setattr(machine, "kubelet", action.state),
    a.SetDevicePlugin: lambda machine, action: setattr(machine, "withdrawn", action.unhealthy),
}
"""All other actions; the decorators below add them."""


def apply(machine: Machine, action: a.AnyAction) -> None:
    """Carry out the action now."""
    members = _MEMBERS.get(type(action))
    if members is None:
        EFFECTS[type(action)](machine, action)
        return
    named: Any = action  # each of these actions names GPUs
    for gpu in machine.select(named.gpu):
        owner, values = members(gpu, action)
        for name, value in values.items():
            setattr(owner, name, value)


def _effect(kind: type[_Action]) -> Callable[[Callable[[Machine, _Action], None]], Callable[[Machine, _Action], None]]:
    """Registers the effect of an action."""

    def register(function: Callable[[Machine, _Action], None]) -> Callable[[Machine, _Action], None]:
        EFFECTS[kind] = function
        return function

    return register


GpuEffect = Callable[[Machine, SimGpu, _Action], None]


def _gpu_effect(kind: type[_Action]) -> Callable[[GpuEffect[_Action]], GpuEffect[_Action]]:
    """Registers the effect of an action on each GPU it names."""

    def register(function: GpuEffect[_Action]) -> GpuEffect[_Action]:
        def on_all(machine: Machine, action: Any) -> None:
            for gpu in machine.select(action.gpu):
                function(machine, gpu, action)

        EFFECTS[kind] = on_all
        return function

    return register


@_gpu_effect(a.RaiseXid)
def _raise_xid(machine: Machine, gpu: SimGpu, action: a.RaiseXid) -> None:
    """`NVRM: Xid (PCI:0000:3b:00 GPU-I:07): 31, pid=1234, name=python3, ...`."""
    if action.event:
        machine.raise_event(gpu, XID, action.xid, action.gi, action.ci)
    if not action.kernel:
        return
    if not gpu.named_in_log:  # the driver names a GPU once, before its first XID
        gpu.named_in_log = True
        machine.log(f"NVRM: GPU at PCI:{gpu.address.key}: {gpu.uuid}", f"NVRM: GPU Board Serial Number: {gpu.serial}")
    pid, name = action.pid, action.process
    info = explain(action.xid)
    if pid is None and info is not None and info.category == "application":
        process = next((p for unit, p in gpu.processes if action.gi in (None, unit.gi)), None)
        if process is not None:
            pid, name = process.pid, name or process.workload.process
    instance = "" if action.gi is None else f" GPU-I:{action.gi:02}"
    if action.ci is not None:
        instance += f" GPU-CI:{action.ci:02}"
    message = action.message or MESSAGES.get(action.xid, "00000000 00000000").replace("{index}", str(gpu.index))
    owner = "pid='<unknown>', name=<unknown>, " if pid is None else f"pid={pid}, name={(name or '?')[:15]}, "
    owner = "" if action.xid == 154 else owner
    machine.log(f"NVRM: Xid (PCI:{gpu.address.key}{instance}): {action.xid}, {owner}{message}")


@_effect(a.RaiseSxid)
def _raise_sxid(machine: Machine, action: a.RaiseSxid) -> None:
    head = f"nvidia-nvswitch{action.switch}: SXid (PCI:0000:{5 + action.switch:02x}:00.0): {action.sxid}, "
    machine.log(
        f"{head}{action.severity}, Link {action.link:02} {action.message}",
        f"{head}Severity 1 Engine instance {action.link:02} Sub-engine instance 00",
        f"{head}Data {{0x10000000, 0x10000000, 0x00000000, 0x10000000, 0x00000000, 0x00000000}}",
    )


@_gpu_effect(a.LoseGpu)
def _lose(machine: Machine, gpu: SimGpu, action: a.LoseGpu) -> None:
    if action.announce:
        _raise_xid(machine, gpu, a.RaiseXid(gpu=gpu.index, xid=79))
        machine.log(
            f"NVRM: GPU {gpu.address}: GPU has fallen off the bus.",
            f"NVRM: GPU {gpu.address}: GPU serial number is {gpu.serial}.",
        )
        machine.raise_event(gpu, UNAVAILABLE)
    gpu.faults.lost, gpu.faults.off_bus = True, action.from_bus


@_gpu_effect(a.RequestRecovery)
def _request_recovery(machine: Machine, gpu: SimGpu, action: a.RequestRecovery) -> None:
    codes = gpu.faults.recovery_action, action.action
    before, now = (
        f"0x{code:x} ({RECOVERY_WORDS[code] if code < len(RECOVERY_WORDS) else 'Unknown'})" for code in codes
    )
    gpu.faults.recovery_action = action.action
    machine.raise_event(gpu, RECOVERY_ACTION, action.action)
    message = f"GPU recovery action changed from {before} to {now}"
    _raise_xid(machine, gpu, a.RaiseXid(gpu=gpu.index, xid=154, message=message))


@_gpu_effect(a.RecoverGpu)
def _recover(machine: Machine, gpu: SimGpu, action: a.RecoverGpu) -> None:
    if gpu.faults.recovery_action:
        _request_recovery(machine, gpu, a.RequestRecovery(gpu=gpu.index, action=0))
    counters = gpu.faults.ecc, gpu.faults.remaps, gpu.faults.retired
    gpu.faults = Faults(gpu.model.nvlinks)
    gpu.faults.ecc, gpu.faults.remaps, gpu.faults.retired = counters
    gpu.driver_reloaded()
    machine.physics[gpu.index].driver_reloaded()
    gpu.attached = True


@_effect(a.HangCalls)
def _hang(machine: Machine, action: a.HangCalls) -> None:
    if action.gpu is None:
        machine.driver_hung = True
        return
    for gpu in machine.select(action.gpu):
        gpu.faults.hung = True


@_effect(a.ReleaseCalls)
def _release(machine: Machine, action: a.ReleaseCalls) -> None:
    if action.gpu is None:
        machine.driver_hung = False
    for gpu in machine.select("all" if action.gpu is None else action.gpu):
        gpu.faults.hung = False


@_effect(a.ReloadDriver)
def _reload(machine: Machine, action: a.ReloadDriver) -> None:
    machine.driver_up = False
    machine.driver = action.driver or machine.driver
    machine.generation += 1
    machine.log("nvidia-modeset: Unloading")
    machine.schedule(a.FinishReload(at=machine.time + action.seconds))


@_effect(a.FinishReload)
def _finish_reload(machine: Machine, action: a.FinishReload) -> None:
    machine.driver_up, machine.driver_hung = True, False
    machine.log(f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {machine.driver}")
    for gpu in machine.gpus:
        gpu.attached = not gpu.faults.lost
        gpu.named_in_log = False
        gpu.driver_reloaded()
        machine.physics[gpu.index].driver_reloaded()


@_gpu_effect(a.AddEccErrors)
def _add_ecc_errors(machine: Machine, gpu: SimGpu, action: a.AddEccErrors) -> None:
    if not gpu.model.ecc:
        return
    for scope in ("volatile", "aggregate"):
        key = action.kind, scope, action.location
        gpu.faults.ecc[key] = gpu.faults.ecc.get(key, 0) + action.count
    machine.raise_event(gpu, SINGLE_BIT if action.kind == "corrected" else DOUBLE_BIT)


@_gpu_effect(a.RemapRows)
def _remap_rows(machine: Machine, gpu: SimGpu, action: a.RemapRows) -> None:
    if gpu.model.remap_banks is None:
        return
    gpu.faults.remaps[action.cause] += 0 if action.failure else action.rows
    gpu.faults.remap_pending = gpu.faults.remap_pending or (action.pending and not action.failure)
    gpu.faults.remap_failure = gpu.faults.remap_failure or action.failure
    _raise_xid(machine, gpu, a.RaiseXid(gpu=gpu.index, xid=64 if action.failure else 63))
    machine.raise_event(gpu, RETIREMENT)


@_gpu_effect(a.RetirePages)
def _retire_pages(machine: Machine, gpu: SimGpu, action: a.RetirePages) -> None:
    if not gpu.model.retired_pages:
        return
    gpu.faults.retired[action.cause] += action.pages
    gpu.faults.retire_pending = action.pending
    machine.raise_event(gpu, RETIREMENT)


@_gpu_effect(a.SetNvlink)
def _set_nvlink(machine: Machine, gpu: SimGpu, action: a.SetNvlink) -> None:
    links = range(gpu.model.nvlinks) if action.link is None else (action.link,)
    for link in (link for link in links if link < gpu.model.nvlinks):
        if action.active is not None:
            gpu.faults.link_active[link] = action.active
        for label, count in action.errors.items():
            errors = gpu.faults.link_errors[link]
            errors[label] = errors.get(label, 0) + count


@_gpu_effect(a.SetPcie)
def _set_pcie(machine: Machine, gpu: SimGpu, action: a.SetPcie) -> None:
    gpu.faults.pcie_generation = action.generation or gpu.faults.pcie_generation
    gpu.faults.pcie_width = action.width or gpu.faults.pcie_width
    gpu.faults.pcie_replays += action.replays


@_gpu_effect(a.SetMigProfiles)
def _set_mig_profiles(machine: Machine, gpu: SimGpu, action: a.SetMigProfiles) -> None:
    for workload in {process.workload.name for _, process in gpu.processes}:
        machine.stop(workload)
    gpu.cut(action.profiles)
