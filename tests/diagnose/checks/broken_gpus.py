"""Hosts on which checks fail: NVML, the health of each GPU, and who sets its power."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from gpuwatch.config import TuningConfig
from gpuwatch.diagnose.baseline.expectation import Expectation
from gpuwatch.diagnose.model import CheckStatus, ClusterFacts, NodePod
from gpuwatch.health.judge import Judge
from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.finding import Judgement
from gpuwatch.model.snapshot import Activity, GpuState, Vgpu
from gpuwatch.model.view import View
from gpuwatch.model.xid import XidCount
from gpuwatch.tuning.actuation.heartbeat import NAME as HEARTBEAT
from gpuwatch.tuning.actuation.heartbeat import Heartbeat
from gpuwatch.tuning.actuation.record import FOLDER
from gpuwatch.tuning.actuation.record import NAME as RECORD
from gpuwatch.tuning.model.setting import Actuation, Setting
from tests.diagnose.checks.broken import Broken
from tests.diagnose.hosts import Host, seen

STATE = f"var/lib/gpuwatch/{FOLDER}"
TRAINING = {"name": "ml/train-0", "gpus": [0, 1, 2, 3], "load": "training"}
FULL = {"CapEff": "000001ffffffffff", "Uid": "0\t0\t0\t0"}


Step = Callable[[Host], None]


def happens(*actions: dict[str, Any], workloads: tuple[dict[str, Any], ...] = (), **node: Any) -> Step:
    """The View of a simulated node to which this happens as it starts."""

    def on(host: Host) -> None:
        host.view = host.earlier = seen(actions, workloads, **node)

    return on


def sampled(index: int, *, judged: bool = False, **changes: Any) -> Step:
    """One GPU's sample says something else; `judged`: the agent's rules look at it anew."""

    def on(host: Host) -> None:
        host.gpu(index, **changes)
        if judged:
            host.view = replace(view(host), judgement=judgement(host))

    return on


def both(*steps: Step) -> Step:
    """One after the other."""

    def on(host: Host) -> None:
        for step in steps:
            step(host)

    return on


def view(host: Host) -> View:
    """The View, which is there."""
    assert host.view is not None
    return host.view


def judgement(host: Host) -> Judgement:
    """What the agent's rules make of the View."""
    return Judge(host.config.checks, hysteresis=False).judge(view(host).snapshot)


def snapshot(**changes: Any) -> Step:
    """Members of the snapshot are others."""

    def on(host: Host) -> None:
        host.view = replace(view(host), snapshot=replace(view(host).snapshot, **changes))

    return on


def nvml(**changes: Any) -> Step:
    """NVML does not start, and its source says so."""

    def on(host: Host) -> None:
        old = view(host).snapshot.sources
        sources = tuple(replace(s, up=False, **changes) if s.name == "nvml" else s for s in old)
        snapshot(sources=sources, driver=None, gpus=(), statuses=())(host)

    return on


def nobody_answers(host: Host) -> None:
    """Not even somebody who could say why."""
    host.view, host.view_failure, host.unread["view"] = None, "hangs", "not there within 5 s"


def silent(index: int) -> Step:
    """A call about the GPU has not returned."""

    def on(host: Host) -> None:
        old = view(host).snapshot
        detail = "a driver call does not return (clocks.sm, 12 s)"
        statuses = tuple(
            replace(s, state=GpuState.UNRESPONSIVE, detail=detail) if s.identity.index == index else s
            for s in old.statuses
        )
        snapshot(statuses=statuses, gpus=tuple(g for g in old.gpus if g.identity.index != index))(host)

    return on


def old_xid(xid: int, hours: float) -> Step:
    """The kernel log tells of an XID of GPU 5 from before anybody looked, by a driver that asks for nothing."""

    def on(host: Host) -> None:
        old, uuid = view(host), view(host).snapshot.gpus[5].identity.uuid
        count = XidCount(uuid=uuid, pci=None, xid=xid, last=old.snapshot.at - hours * 3600)
        host.view = replace(old, xids=(*old.xids, count))

    return on


def tuning(host: Host) -> None:
    """gpuwatch is to set something."""
    host.config = replace(host.config, tuning=TuningConfig(mode="enforce"))


def process(**status: str) -> Step:
    """Who asks."""

    def on(host: Host) -> None:
        host.write("proc/self/status", "".join(f"{name}:\t{text}\n" for name, text in (FULL | status).items()))
        host.write("proc/self/limits", "Max locked memory         unlimited            unlimited            bytes\n")

    return on


def unshared(host: Host) -> None:
    """The process of GPU 0 is in /proc no more."""
    gone = {process.pid for process in view(host).snapshot.gpus[0].processes or ()}
    assert gone
    host.view = replace(view(host), owners=tuple(owner for owner in view(host).owners if owner.pid not in gone))


def working(host: Host) -> None:
    """Work runs, and did so a look ago."""
    host.view = host.earlier = seen((), (TRAINING,))


def recorded(knob: str = "locked_clocks", applied: float = 1005e6, **changes: Any) -> Step:
    """gpuwatch has set something on GPU 3, and its tuner lives."""

    def on(host: Host) -> None:
        now = view(host).snapshot
        assert now.driver is not None
        setting = Setting(
            uuid=now.gpus[3].identity.uuid,
            knob=knob,
            original=700.0 if knob == "power_limit" else None,
            applied=(applied,),
            at=now.at,
            boot_id=now.host.boot_id or "",
            driver=now.driver.version or "",
        )
        body = {"schema": 1, "content": {"actuation": Actuation(settings=(replace(setting, **changes),))}}
        host.write(f"{STATE}/{RECORD}", msgspec.json.encode(body).decode())
        beat = {"schema": 1, "content": Heartbeat(mode="enforce", pid=4711, at=now.at)}
        host.write(f"{STATE}/{HEARTBEAT}", msgspec.json.encode(beat).decode())

    return on


def observing(host: Host) -> None:
    """The tuner was told to set nothing any more."""
    beat = {"schema": 1, "content": Heartbeat(mode="observe", pid=4711, at=view(host).snapshot.at)}
    host.write(f"{STATE}/{HEARTBEAT}", msgspec.json.encode(beat).decode())


def capped_pod(host: Host) -> None:
    """A pod asks another tuner for a power limit."""
    pod = NodePod(namespace="ml", name="decode", uid="u1", annotations={"dynamo.nvidia.com/gpu-power-limit": "400"})
    host.cluster = ClusterFacts(node=NodeObject(name="gpu-node-1", uid="n1", resource_version="1"), pods=(pod,))


def budget(watts: float) -> Step:
    """What the site allows."""

    def on(host: Host) -> None:
        host.expect = Expectation(power_budget=watts)

    return on


def a_second_ago(index: int | None = None, energy: float = 0.0) -> Step:
    """The earlier look; the energy of one GPU since then, of the others enough."""

    def on(host: Host) -> None:
        now = view(host).snapshot
        before = [
            replace(
                gpu,
                at=gpu.at - 1.0,
                power=replace(
                    gpu.power, energy=(gpu.power.energy or 0.0) - (energy if gpu.identity.index == index else 100.0)
                ),
            )
            for gpu in now.gpus
        ]
        host.earlier = replace(view(host), snapshot=replace(now, at=now.at - 1.0, gpus=tuple(before)))

    return on


def drawing(host: Host) -> None:
    """Counters are far from their beginning."""
    for index in range(8):
        host.gpu(index, power={"energy": 50_000.0, "average": 80.0})
    a_second_ago()(host)


WARN = CheckStatus.WARN

SICK = happens(
    {"do": "zombie", "gpu": 0},
    {"do": "ecc", "gpu": 1, "kind": "uncorrected", "count": 2},
    {"do": "ecc_mode", "gpu": 2, "on": False},
    {"do": "power_limit", "gpu": 3, "watts": 300},
    {"do": "xid", "gpu": 4, "xid": 95},
    {"do": "ecc", "gpu": 4, "kind": "uncorrected", "count": 1},
    {"do": "remap", "gpu": 5},
    {"do": "power_brake", "gpu": 6},
    {"do": "inforom", "gpu": 7},
)
SICKER = happens(
    {"do": "ecc", "gpu": 1, "kind": "uncorrected", "location": "sram", "count": 11},
    {"do": "compute_mode", "gpu": 2, "mode": "exclusive_process"},
    {"do": "power_limit", "gpu": 3, "watts": 500},
    {"do": "xid", "gpu": 4, "xid": 94},
    {"do": "remap", "gpu": 5, "failure": True},
)
"""Nodes of which each GPU has a trouble of its own: it takes a while to look at a node."""

NVML = (
    Broken("N01", happens({"do": "refuse", "error": "LIBRARY_NOT_FOUND"}), "cannot be loaded", "runtimeClassName"),
    Broken("N02", happens({"do": "refuse", "error": "LIB_RM_VERSION_MISMATCH"}), "version mismatch", "reboot"),
    Broken("N02", nvml(code=4, reason="nvmlInit: Insufficient Permissions"), "no permission", "ls -l /dev/nvidia*"),
    Broken("N02", happens({"do": "refuse", "error": "DRIVER_NOT_LOADED"}), "not loaded", "modprobe nvidia"),
    Broken("N02", nvml(code=17, reason="nvmlInit: Operating System"), "NVML does not start", "nvidia-smi"),
    Broken("N02", nvml(hanging_seconds=12.0, reason="starting: nvmlInit"), "not answered for 12 s", "Kill nothing"),
    Broken("N02", nvml(reason="the reader process was ended by SIGSEGV"), "SIGSEGV", "report it"),
    Broken("N02", nobody_answers, "does not answer", "dmesg -T"),
    Broken(
        "N03",
        happens({"do": "lose", "gpu": 3, "announce": False}, {"do": "reload", "seconds": 0}),
        "NVML has 7 GPUs, the driver has 8 on the bus (missing: 0000:61:00.0)",
        "RmInitAdapter",
    ),
    Broken("N04", happens({"do": "lose", "gpu": 3}), "GPU 3: GPU is lost", "kubectl drain gpu-node-1"),
    Broken("N04", happens({"do": "hang", "gpu": 2}), "GPU 2: registration hangs", "Kill nothing"),
    Broken("N04", silent(6), "GPU 6: unresponsive: a driver call does not return", "Kill nothing"),
    Broken("N05", sampled(0, activity=Activity()), "offers none", "535", result=WARN),
    Broken(
        "N06",
        sampled(4, activity=Activity(), errors={"activity": "Insufficient Permissions"}),
        "GPU 4: activity counters are refused: Insufficient Permissions",
        "dcgmi profile --pause",
        result=WARN,
    ),
    Broken("N07", process(CapEff="0"), "may not", "SYS_ADMIN", result=WARN, well=both(tuning, process())),
)

MEMORY = (
    Broken("G01", SICK, "GPU 2: ECC is to be off", "-e 1", result=WARN),
    Broken(
        "G01",
        sampled(2, ecc={"enabled": False, "pending": False}),
        "on for others of its model",
        "-i 2 -e 1",
        result=WARN,
    ),
    Broken(
        "G02",
        SICK,
        "GPU 1: uncorrected ECC errors",
        "nvidia-smi --gpu-reset -i 1",
        result=WARN,
    ),
    Broken(
        "G02",
        SICKER,
        "GPU 1: more uncorrected SRAM errors",
        "nvidia-bug-report.sh",
    ),
    Broken(
        "G03",
        SICKER,
        "GPU 5: a row could not be remapped",
        "Replace the GPU",
    ),
    Broken("G03", SICK, "a row remap waits", "--gpu-reset -i 5", result=WARN),
    Broken("G03", sampled(5, row_remap={"banks": {"none": 1}}), "no spare row", "Have the GPU replaced", result=WARN),
    Broken(
        "G04",
        happens({"do": "retire", "gpu": 0, "pages": 62, "pending": False}, model="t4", gpus=2),
        "GPU 0: 62 memory pages are retired",
        "Replace the GPU",
        result=WARN,
        node={"model": "t4", "gpus": 2},
    ),
    Broken(
        "G04",
        happens({"do": "retire", "gpu": 1}, model="t4", gpus=2),
        "waits for a reset",
        "--gpu-reset -i 1",
        result=WARN,
        node={"model": "t4", "gpus": 2},
    ),
)

LINE_ONLY = {"do": "xid", "gpu": 4, "xid": 95, "event": False}
ASKS_RESET = {"do": "recovery_action", "gpu": 4, "action": 1}

XIDS = (
    Broken("G05", SICK, "GPU 4: XID 95", "nvidia-smi --gpu-reset -i 4"),
    Broken("G05", happens(LINE_ONLY, ASKS_RESET), "GPU 4: XID 95", "nvidia-smi --gpu-reset -i 4"),
    Broken("G05", happens(LINE_ONLY), "reported by the kernel log only", "xid explain 95", result=WARN),
    Broken("G05", SICKER, "GPU 4: XID 94", "xid explain 94", result=WARN),
    Broken(
        "G05",
        happens({"do": "xid", "gpu": 3, "xid": 94}, workloads=(TRAINING,)),
        "pod ml/train-0",
        "xid explain 94",
        result=WARN,
    ),
    Broken("G05", old_xid(95, 0.1), "GPU 5: XID 95", "xid explain 95"),
    Broken("G05", old_xid(95, 3.0), "3 h ago", "xid explain 95", result=WARN),
)

BOARD = (
    Broken(
        "G06",
        sampled(4, judged=True, temperature={"gpu": 88.0, "margin": -1.0}),
        "above its limit",
        "inlet",
        result=WARN,
    ),
    Broken(
        "G06",
        sampled(1, temperature={"gpu": 94.0}),
        "94 °C, slowdown at 93 °C",
        "fans",
        result=WARN,
        node={"model": "t4", "gpus": 2},
    ),
    Broken("G07", SICK, "GPU 6: the power supply", "power cables", result=WARN),
    Broken(
        "G07",
        sampled(6, judged=True, clock_events={"active": {"hw_thermal_slowdown": True}}),
        "too hot",
        "inlet",
        result=WARN,
    ),
    Broken(
        "G07",
        sampled(6, clock_events={"active": {"sw_thermal_slowdown": True}}),
        "because of heat",
        "fans",
        result=WARN,
    ),
    Broken(
        "G08",
        SICK,
        "GPU 3: limit 300 W, default 700 W, and not by gpuwatch",
        "nvidia-smi -i 3 -pl 700",
        result=WARN,
    ),
    Broken("G08", sampled(3, power={"limit_enforced": 400.0}), "not set through this driver", "BMC", result=WARN),
    Broken(
        "G09",
        happens({"do": "stuck_clock", "gpu": 3, "megahertz": 300}, workloads=(TRAINING,)),
        "GPU 3: at work with",
        "nvidia-smi -i 3 -rgc",
        result=WARN,
        well=working,
    ),
    Broken(
        "G09",
        sampled(2, clocks={"sm": 1200e6}, clock_events={"active": {}}),
        "GPU 2: 1200 MHz, others of its model",
        "-lgc",
        result=WARN,
        well=both(working, *(sampled(i, clocks={"sm": 1980e6}, clock_events={"active": {}}) for i in range(4))),
    ),
)

MODES = (
    Broken(
        "G10",
        both(
            happens({"do": "persistence_mode", "gpu": "all", "on": False}),
            lambda host: host.remove("proc/1034/comm"),
        ),
        "persistence mode is off",
        "systemctl enable --now nvidia-persistenced",
        result=WARN,
    ),
    Broken(
        "G11",
        SICKER,
        "GPU 2: compute mode EXCLUSIVE_PROCESS",
        "nvidia-smi -i 2 -c DEFAULT",
        result=WARN,
    ),
    Broken("G11", sampled(2, compute_mode="prohibited"), "PROHIBITED", "-c DEFAULT"),
    Broken("G12", SICK, "GiB in use by no process", "fuser -v", result=WARN),
    Broken("G12", unshared, "which is gone", "--gpu-reset -i 0", result=WARN, well=working),
    Broken("G13", SICK, "GPU 7: NVML calls its infoROM", "nvidia-bug-report", result=WARN),
    Broken("G14", sampled(5, judged=True, recovery_action=1), "GPU 5: the driver asks", "--gpu-reset -i 5"),
    Broken("G14", sampled(5, judged=True, recovery_action=2), "the driver asks", "systemctl reboot"),
    Broken("G14", sampled(5, judged=True, recovery_action=5), "the driver asks", "what the driver asks", result=WARN),
    Broken(
        "G15",
        sampled(0, vgpus=(Vgpu(uuid="u", instance=1, vm_name="vm-12", licensed=False),)),
        "vGPU of vm-12",
        "gridd.conf",
        result=WARN,
        well=sampled(0, vgpus=(Vgpu(uuid="u", instance=1, vm_name="vm-12", licensed=True),)),
    ),
    Broken(
        "G16", sampled(6, identity={"vbios": "96.00.30.00.01"}), "GPU 6: VBIOS 96.00.30.00.01", "firmware", result=WARN
    ),
)

POWER = (
    Broken(
        "P01",
        lambda host: host.remove(f"{STATE}/{HEARTBEAT}"),
        "GPU 3: a clock lock at 1005 MHz of gpuwatch's tuner is left over: no tuner runs",
        "gpuwatch tune restore",
        result=WARN,
        well=recorded(),
    ),
    Broken("P01", observing, "its tuner's mode is observe", "guard", result=WARN, well=recorded()),
    Broken("P01", recorded(boot_id="another"), "before the last boot", "tune restore", result=WARN),
    Broken("P01", recorded(driver="570.1"), "under driver 570.1", "tune restore", result=WARN),
    Broken("P02", capped_pod, "Dynamo power agent", "Set tuning.mode to observe", result=WARN, well=tuning),
    Broken(
        "P02",
        both(recorded("power_limit", 400.0), SICKER),
        "GPU 3 has a limit of 500 W, gpuwatch has set 400 W",
        "tuning.mode",
        result=WARN,
        well=tuning,
    ),
    Broken(
        "P03",
        budget(4800),
        "add up to 5600 W, the budget is 4800 W",
        "Lower the limits",
        result=WARN,
        well=budget(6000),
    ),
    Broken("P04", a_second_ago(1, 0.0), "GPU 1: it draws power, but", "newer release", result=WARN, well=drawing),
    Broken("P04", a_second_ago(1, -500.0), "went back", "reset", result=WARN, well=drawing),
)

BROKEN: tuple[Broken, ...] = (*NVML, *MEMORY, *XIDS, *BOARD, *MODES, *POWER)
