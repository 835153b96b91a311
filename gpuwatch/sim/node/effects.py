"""What each action does to the node: a table from action to function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from gpuwatch.model.xid_catalogue import explain
from gpuwatch.sim.node import actions as a
from gpuwatch.sim.node.gpu import Faults, SimGpu
from gpuwatch.sim.surroundings import kernel_text as text

if TYPE_CHECKING:
    from gpuwatch.sim.node.node import Node

SINGLE_BIT, DOUBLE_BIT, XID, RETIREMENT, UNAVAILABLE, RECOVERY_ACTION = 0x1, 0x2, 0x8, 0x400, 0x4000, 0x8000
"""nvmlEventType* bits."""


def apply(node: Node, action: a.AnyAction) -> None:
    """Let the action happen now."""
    EFFECTS[type(action)](node, action)


def _each(effect: Callable[[Node, SimGpu, Any], None]) -> Callable[[Node, Any], None]:
    """An effect for every GPU that the action names."""

    def on_all(node: Node, action: Any) -> None:
        for gpu in node.select(action.gpu):
            effect(node, gpu, action)

    return on_all


def _fault(**members: Callable[[Any], Any]) -> Callable[[Node, Any], None]:
    """An effect that is all there is to a fault: members of `Faults`, each from the action."""

    def on_all(node: Node, action: Any) -> None:
        for gpu in node.select(action.gpu):
            for name, value in members.items():
                setattr(gpu.faults, name, value(action))

    return on_all


def _xid(node: Node, gpu: SimGpu, action: a.Xid) -> None:
    if action.event:
        node.happen(gpu, XID, action.xid, action.gi, action.ci)
    if not action.kernel:
        return
    if not gpu.named_in_log:
        gpu.named_in_log = True
        node.log(text.uuid_line(gpu))
        node.log(text.serial_line(gpu))
    pid, name = action.pid, action.process
    info = explain(action.xid)
    if pid is None and info is not None and info.category == "application":
        culprit = next((p for unit, p in gpu.processes if action.gi in (None, unit.gi)), None)
        if culprit is not None:
            pid, name = culprit.pid, name or culprit.workload.process
    node.log(text.xid_line(gpu, action, pid, name))


def _sxid(node: Node, action: a.Sxid) -> None:
    for line in text.sxid_lines(action):
        node.log(line)


def _lose(node: Node, gpu: SimGpu, action: a.Lose) -> None:
    if action.announce:
        _xid(node, gpu, a.Xid(gpu=gpu.index, xid=79))
        for line in text.bus_loss_lines(gpu):
            node.log(line)
        node.happen(gpu, UNAVAILABLE)
    gpu.faults.lost, gpu.faults.off_bus = True, action.from_bus


def _recover(node: Node, gpu: SimGpu, action: a.Recover) -> None:
    if gpu.faults.recovery_action:
        _recovery_action(node, gpu, a.RecoveryAction(gpu=gpu.index, action=0))
    counters = gpu.faults.ecc, gpu.faults.remaps, gpu.faults.retired
    gpu.faults = Faults(gpu.model.nvlinks)
    gpu.faults.ecc, gpu.faults.remaps, gpu.faults.retired = counters
    gpu.driver_reloaded()
    node.physics[gpu.index].driver_reloaded()
    gpu.attached = True


def _hanging(on: bool) -> Callable[[Node, Any], None]:
    def effect(node: Node, action: a.Hang | a.Unhang) -> None:
        if action.gpu is None:
            node.driver_hung = on
            if on:
                return
        for gpu in node.select("all" if action.gpu is None else action.gpu):
            gpu.faults.hung = on

    return effect


def _slow(node: Node, gpu: SimGpu, action: a.Slow) -> None:
    gpu.faults.delay = action.delay


def _reload(node: Node, action: a.Reload) -> None:
    node.driver_up = False
    node.driver = action.driver or node.driver
    node.generation += 1
    node.log("nvidia-modeset: Unloading")
    node.schedule(a.Loaded(at=node.time + action.seconds))


def _loaded(node: Node, action: a.Loaded) -> None:
    node.driver_up, node.driver_hung = True, False
    node.log(f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {node.driver}")
    for gpu in node.gpus:
        gpu.attached = not gpu.faults.lost
        gpu.named_in_log = False
        gpu.driver_reloaded()
        node.physics[gpu.index].driver_reloaded()


def _refuse(node: Node, action: a.Refuse) -> None:
    node.init_error = action.error


def _ecc_mode(node: Node, gpu: SimGpu, action: a.EccMode) -> None:
    gpu.ecc_pending = action.on


def _compute_mode(node: Node, gpu: SimGpu, action: a.ComputeMode) -> None:
    gpu.compute_mode = action.mode


def _persistence_mode(node: Node, gpu: SimGpu, action: a.PersistenceMode) -> None:
    gpu.persistence_mode = action.on


def _ecc(node: Node, gpu: SimGpu, action: a.Ecc) -> None:
    if not gpu.model.ecc:
        return
    for scope in ("volatile", "aggregate"):
        key = action.kind, scope, action.location
        gpu.faults.ecc[key] = gpu.faults.ecc.get(key, 0) + action.count
    node.happen(gpu, SINGLE_BIT if action.kind == "corrected" else DOUBLE_BIT)


def _remap(node: Node, gpu: SimGpu, action: a.Remap) -> None:
    if gpu.model.remap_banks is None:
        return
    gpu.faults.remaps[action.cause] += 0 if action.failure else action.rows
    gpu.faults.remap_pending = gpu.faults.remap_pending or (action.pending and not action.failure)
    gpu.faults.remap_failure = gpu.faults.remap_failure or action.failure
    _xid(node, gpu, a.Xid(gpu=gpu.index, xid=64 if action.failure else 63))
    node.happen(gpu, RETIREMENT)


def _retire(node: Node, gpu: SimGpu, action: a.Retire) -> None:
    if not gpu.model.retired_pages:
        return
    gpu.faults.retired[action.cause] += action.pages
    gpu.faults.retire_pending = action.pending
    node.happen(gpu, RETIREMENT)


def _thermal(node: Node, gpu: SimGpu, action: a.Thermal) -> None:
    gpu.faults.ambient, gpu.faults.cooling = action.ambient, max(0.05, action.cooling)


def _power_limit(node: Node, gpu: SimGpu, action: a.PowerLimit) -> None:
    gpu.power_limit = min(max(action.watts, gpu.model.power_min), gpu.model.power_max)


def _lock_clocks(node: Node, gpu: SimGpu, action: a.LockClocks) -> None:
    gpu.locked_clocks = None if action.highest is None else (action.lowest, action.highest)


def _nvlink(node: Node, gpu: SimGpu, action: a.Nvlink) -> None:
    links = range(gpu.model.nvlinks) if action.link is None else (action.link,)
    for link in (link for link in links if link < gpu.model.nvlinks):
        if action.active is not None:
            gpu.faults.link_active[link] = action.active
        for label, count in action.errors.items():
            errors = gpu.faults.link_errors[link]
            errors[label] = errors.get(label, 0) + count


def _pcie(node: Node, gpu: SimGpu, action: a.Pcie) -> None:
    gpu.faults.pcie_generation = action.generation or gpu.faults.pcie_generation
    gpu.faults.pcie_width = action.width or gpu.faults.pcie_width
    gpu.faults.pcie_replays += action.replays


def _recovery_action(node: Node, gpu: SimGpu, action: a.RecoveryAction) -> None:
    message = text.recovery_message(gpu.faults.recovery_action, action.action)
    gpu.faults.recovery_action = action.action
    node.happen(gpu, RECOVERY_ACTION, action.action)
    _xid(node, gpu, a.Xid(gpu=gpu.index, xid=154, message=message))


def _mig(node: Node, gpu: SimGpu, action: a.Mig) -> None:
    for workload in {process.workload.name for _, process in gpu.processes}:
        node.stop(workload)
    gpu.cut(action.profiles)


def _kernel(node: Node, action: a.Kernel) -> None:
    node.log(action.line, action.facility)


def _start(node: Node, action: a.Start) -> None:
    node.start(action.workload)


def _stop(node: Node, action: a.Stop) -> None:
    node.stop(action.name)


def _kubelet(node: Node, action: a.Kubelet) -> None:
    node.kubelet = action.state


EFFECTS: dict[type[msgspec.Struct], Callable[[Node, Any], None]] = {
    a.Xid: _each(_xid),
    a.Sxid: _sxid,
    a.Kernel: _kernel,
    a.Lose: _each(_lose),
    a.Recover: _each(_recover),
    a.Hang: _hanging(True),
    a.Unhang: _hanging(False),
    a.Slow: _each(_slow),
    a.Reload: _reload,
    a.Loaded: _loaded,
    a.Refuse: _refuse,
    a.Ecc: _each(_ecc),
    a.EccMode: _each(_ecc_mode),
    a.Remap: _each(_remap),
    a.Retire: _each(_retire),
    a.Repair: _fault(
        channel_repair=lambda action: action.channel,
        tpc_repair=lambda action: action.tpc,
        unrepairable=lambda action: action.unrepairable,
    ),
    a.Inforom: _fault(inforom_corrupt=lambda _: True),
    a.Zombie: _fault(zombie=lambda action: action.mebibytes),
    a.StuckClock: _fault(stuck_clock=lambda action: action.megahertz),
    a.MigPending: _fault(mig_pending=lambda _: True),
    a.Thermal: _each(_thermal),
    a.PowerBrake: _fault(power_brake=lambda action: action.engaged),
    a.PowerLimit: _each(_power_limit),
    a.LockClocks: _each(_lock_clocks),
    a.ComputeMode: _each(_compute_mode),
    a.PersistenceMode: _each(_persistence_mode),
    a.Nvlink: _each(_nvlink),
    a.Fabric: _fault(fabric=lambda action: (action.state, action.status, action.health)),
    a.Pcie: _each(_pcie),
    a.RecoveryAction: _each(_recovery_action),
    a.Start: _start,
    a.Stop: _stop,
    a.Mig: _each(_mig),
    a.Kubelet: _kubelet,
}
