"""Nodes made by hand for the screens: at work, in trouble, cut into MIG instances, without Kubernetes, empty."""

from msgspec.structs import replace

from gpuwatch.model.event import ActionEvent, Change, FindingEvent, Result
from gpuwatch.model.finding import Finding, Health, Judgement, Remedy, Severity
from gpuwatch.model.snapshot import (
    Activity,
    ClockEvents,
    Clocks,
    Driver,
    Ecc,
    Gpu,
    GpuProcess,
    GpuState,
    GpuStatus,
    Identity,
    Memory,
    MigInstance,
    NvLink,
    Pcie,
    Power,
    RowRemap,
    Snapshot,
    SourceStatus,
    Temperature,
    Utilization,
)
from gpuwatch.model.view import AgentStatus, Events, PodEnergy, View
from gpuwatch.model.workload import Attribution, DeviceUse, Holder, PodUsage, ProcessOwner, Workload
from gpuwatch.model.xid import BusLossEvent, SxidEvent, XidCount, XidEvent

AT = 1_790_000_000.25
"""2026-09-21T14:13:20.250Z"""
GIB = 1 << 30


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-1111-2222-3333-444455556666"


def identity(index: int, name: str = "NVIDIA H100 80GB HBM3") -> Identity:
    return Identity(
        index=index,
        uuid=uuid(index),
        pci_bus_id=f"00000000:{0x1B + index:02X}:00.0",
        name=name,
        architecture="Hopper",
        serial=f"16533230{index:05}",
        minor=index,
    )


def gpu(index: int, busy: float = 0.98, **changes) -> Gpu:
    base = Gpu(
        identity=identity(index),
        at=AT - 0.5,
        utilization=Utilization(gpu=busy, memory=busy / 2),
        activity=Activity(sm=busy * 0.7, tensor=busy * 0.4),
        memory=Memory(total=80 * GIB, used=int(busy * 71 * GIB), free=80 * GIB - int(busy * 71 * GIB), reserved=GIB),
        power=Power(average=70 + busy * 600, instant=72 + busy * 600, limit_enforced=700.0, energy=3.6e6),
        temperature=Temperature(gpu=35 + busy * 30, memory=40.0, margin=40.0),
        clocks=Clocks(sm=1.98e9, graphics=1.98e9, sm_max=1.98e9),
        clock_events=ClockEvents(active={"gpu_idle": False, "hw_thermal_slowdown": False}, seconds={"thermal": 1.5}),
        performance_state=0,
        pcie=Pcie(generation=5, generation_max=5, width=16, width_max=16, replays=0),
        ecc=Ecc(enabled=True, counts={"uncorrected/volatile/total": 0, "corrected/volatile/total": 3}),
        row_remap=RowRemap(corrected=0, uncorrected=0, pending=False, failure=False, banks={"max": 2560, "none": 0}),
        nvlinks=(NvLink(link=0, active=True, version="4.0", speed_bytes_per_second=26.5e9, errors={"replay": 2}),),
        recovery_action=0,
        persistence_mode=True,
        processes=(),
        unsupported=("temperature.threshold_slowdown", "retired_pages.single_bit"),
        errors={"bar1.total": "Unknown Error"},
    )
    return replace(base, **changes)


def process(pid: int, **changes) -> GpuProcess:
    return GpuProcess(pid=pid, **({"type": "compute", "used_memory": 68 * GIB, "sm_utilization": 0.95} | changes))


def workload(namespace: str, pod: str, container: str = "main") -> Workload:
    return Workload(namespace=namespace, pod=pod, container=container, pod_uid=f"uid-{pod}")


def view(gpus: tuple[Gpu, ...], *, statuses: tuple[GpuStatus, ...] = (), **changes) -> View:
    fresh = tuple(GpuStatus(identity=g.identity, state=GpuState.FRESH, since=AT - 3600) for g in gpus)
    known = tuple(sorted((*fresh, *statuses), key=lambda status: status.identity.index))
    snapshot = Snapshot(
        at=AT,
        interval=2.0,
        driver=Driver(version="580.95.05", nvml="13.580.95.05", cuda="13.0"),
        gpus=gpus,
        statuses=known,
        sources=(
            SourceStatus(name="nvml", up=True, last_success=AT - 0.5),
            SourceStatus(name="kmsg", up=None, reason="permission denied; give the container CAP_SYSLOG"),
        ),
        node="gpu-node-07",
    )
    healthy = Judgement(node=Health.HEALTHY, gpus={s.identity.uuid: Health.HEALTHY for s in known})
    agent = AgentStatus(version="0.1.0", started=AT - 7200)
    return View(**({"snapshot": snapshot, "agent": agent, "judgement": healthy} | changes))


TRAIN = workload("ml-research", "llama-3-pretrain-worker-0-7b9c5d", "trainer")
CHAT = workload("serving", "chat-0", "vllm")


def healthy() -> View:
    """Three GPUs: one trains in a pod, one serves in another, one is free."""
    gpus = (
        gpu(0, processes=(process(4001),)),
        gpu(1, 0.4, processes=(process(4002, used_memory=28 * GIB, sm_utilization=0.4),)),
        gpu(2, 0.0),
    )
    owners = (
        ProcessOwner(
            pid=4001, start_time=1, name="pt_main_thread", uid=0, user="root", pod_uid="uid-a", workload=TRAIN
        ),
        ProcessOwner(
            pid=4002, start_time=1, name="VLLM::EngineCor", uid=0, user="root", pod_uid="uid-b", workload=CHAT
        ),
    )
    attribution = Attribution(
        devices=(
            DeviceUse(gpu=uuid(0), allocated=True, holders=(Holder(workload=TRAIN, resource="nvidia.com/gpu"),)),
            DeviceUse(gpu=uuid(1), allocated=True, holders=(Holder(workload=CHAT, resource="nvidia.com/gpu"),)),
            DeviceUse(gpu=uuid(2), allocated=False),
        ),
        usage=(
            PodUsage(gpu=uuid(0), workload=TRAIN, processes=1, memory=68 * GIB, utilization=0.95, energy_share=1.0),
            PodUsage(gpu=uuid(1), workload=CHAT, processes=1, memory=28 * GIB, utilization=0.4, energy_share=1.0),
        ),
    )
    energy = (
        PodEnergy(gpu=uuid(0), workload=TRAIN, joules=9_000_000.0),
        PodEnergy(gpu=uuid(1), workload=CHAT, joules=1800.0),
    )
    return view(gpus, owners=owners, attribution=attribution, pod_energy=energy)


def failing() -> View:
    """GPU 0 works, GPU 1 waits for a reset, GPU 2 fell off the bus in the middle of a job, the node lacks one."""
    lost = GpuStatus(identity=identity(2), state=GpuState.LOST, detail="GPU is lost", since=AT - 240)
    findings = (
        Finding(
            check="row_remap_pending",
            severity=Severity.WARNING,
            message="a row remap waits for a reset",
            gpu=uuid(1),
            since=AT - 3 * 3600,
            remedy=Remedy.RESET_GPU,
            action="reset the GPU when its work is done",
            evidence={"row_remap.pending": "true", "row_remap.uncorrected": "1"},
        ),
        Finding(
            check="gpu_lost",
            severity=Severity.CRITICAL,
            message="GPU is lost",
            gpu=uuid(2),
            since=AT - 240,
            last=AT - 240,
            xid=79,
            remedy=Remedy.REBOOT_NODE,
            action="drain the node and reboot it; reseat or replace the GPU if it happens again",
            evidence={"state": "lost", "kernel": "GPU has fallen off the bus."},
            pods=(TRAIN, workload(TRAIN.namespace, TRAIN.pod, "sidecar")),
        ),
        Finding(
            check="gpu_missing", severity=Severity.CRITICAL, message="3 of 4 expected GPUs are there", since=AT - 240
        ),
    )
    remap = RowRemap(corrected=0, uncorrected=1, pending=True, failure=False)
    gpus = (gpu(0, processes=(process(4001),)), gpu(1, 0.5, row_remap=remap))
    attribution = Attribution(
        devices=(
            DeviceUse(gpu=uuid(0), allocated=True, holders=(Holder(workload=CHAT, resource="nvidia.com/gpu"),)),
            DeviceUse(gpu=uuid(2), allocated=True, holders=(Holder(workload=TRAIN, resource="nvidia.com/gpu"),)),
        )
    )
    healths = {uuid(0): Health.HEALTHY, uuid(1): Health.DEGRADED, uuid(2): Health.FAILED}
    return view(
        gpus,
        statuses=(lost,),
        attribution=attribution,
        judgement=Judgement(node=Health.FAILED, gpus=healths, findings=findings),
        xids=(
            XidCount(uuid=uuid(1), pci="0000:1c:00", xid=63, count=2, last=AT - 3 * 3600),
            XidCount(uuid=uuid(2), pci="0000:1d:00", xid=79, count=1, last=AT - 240),
            XidCount(uuid=uuid(0), pci="0000:1b:00", xid=31, count=0),
            XidCount(uuid=None, pci="0000:99:00", xid=9999, count=1, last=AT - 60),
        ),
    )


def degraded() -> View:
    """One GPU, hot."""
    hot = gpu(0, clock_events=ClockEvents(active={"hw_thermal_slowdown": True}))
    finding = Finding(check="hw_thermal_slowdown", severity=Severity.WARNING, message="too hot", gpu=uuid(0), since=AT)
    judgement = Judgement(node=Health.DEGRADED, gpus={uuid(0): Health.DEGRADED}, findings=(finding,))
    return view((hot,), judgement=judgement)


def mig() -> View:
    """One GPU cut in two; one instance is used by a pod."""
    instances = tuple(
        MigInstance(
            index=number,
            uuid=f"MIG-{number}",
            gi=gi,
            ci=0,
            profile="3g.40gb",
            memory=Memory(total=40 * GIB, used=used * GIB),
            multiprocessors=60,
        )
        for number, (gi, used) in enumerate(((1, 12), (2, 0)))
    )
    running = (process(4002, gi=1, ci=0, used_memory=12 * GIB, sm_utilization=None),)
    cut = gpu(0, mig_enabled=True, mig=instances, utilization=Utilization(), activity=Activity(), processes=running)
    used = Holder(workload=CHAT, resource="nvidia.com/mig-3g.40gb")
    attribution = Attribution(
        devices=(
            DeviceUse(gpu=uuid(0), mig="MIG-0", gi=1, ci=0, profile="3g.40gb", allocated=True, holders=(used,)),
            DeviceUse(gpu=uuid(0), mig="MIG-1", gi=2, ci=0, profile="3g.40gb", allocated=False),
        ),
        usage=(PodUsage(gpu=uuid(0), gi=1, workload=CHAT, processes=1, memory=12 * GIB, energy_share=1.0),),
    )
    owner = ProcessOwner(pid=4002, start_time=1, name="VLLM", uid=0, user="root", pod_uid="uid-b", workload=CHAT)
    return view((cut,), attribution=attribution, owners=(owner,))


def bare() -> View:
    """No Kubernetes: a Slurm job, a user's process and one that /proc does not tell about."""
    gpus = (
        gpu(0, processes=(process(10),)),
        gpu(1, processes=(process(11), process(12, type="graphics", name="Xorg"))),
    )
    owners = (
        ProcessOwner(pid=10, start_time=1, name="python", uid=1001, user="anna", slurm_job="4711"),
        ProcessOwner(pid=11, start_time=1, name="python3", uid=1002, user="ben"),
    )
    devices = (DeviceUse(gpu=uuid(0), allocated=True), DeviceUse(gpu=uuid(1)))
    return view(gpus, owners=owners, attribution=Attribution(devices=devices))


def empty() -> View:
    """The driver answers and has no GPU."""
    return view((), judgement=Judgement(node=Health.UNKNOWN))


def some_events() -> Events:
    fault = XidEvent(
        at=AT - 3600,
        xid=31,
        source="nvml",
        also="kernel",
        pci="0000:1b:00",
        uuid=uuid(0),
        pid=4001,
        name="pt_main_thread",
        message="Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted",
    )
    fell = "GPU has fallen off the bus."
    return Events(
        xids=(fault, XidEvent(at=AT - 240, xid=79, source="kernel", pci="0000:1d:00", message=fell)),
        sxids=(SxidEvent(at=AT - 600, sxid=20034, switch=2, pci="0000:c1:00.0", severity="fatal", link=48),),
        bus_losses=(BusLossEvent(at=AT - 239, pci="0000:1d:00", message=fell),),
    )


def a_fault_and_its_end() -> Events:
    """An XID, what was found by it, what was done about it, and the end."""
    fell = "GPU has fallen off the bus."
    lost = Finding(check="xid", severity=Severity.CRITICAL, message=fell, gpu=uuid(2), xid=79, since=AT - 240)
    blind = Finding(check="monitoring_degraded", severity=Severity.WARNING, message="kmsg: permission denied")

    def taint(at: float, result: Result, number: int = 1, **more: str) -> ActionEvent:
        target, why = "node/gpu-node-07", "xid/79 on GPU 2"
        who = {"actor": "remediator", "action": "taint", "target": target, "why": why, "number": number}
        return ActionEvent(at=at, result=result, evidence=(lost.key,), **who, **more)

    return Events(
        xids=(XidEvent(at=AT - 240, xid=79, source="kernel", pci="0000:1d:00", message=fell),),
        findings=(
            FindingEvent(at=AT - 300, change=Change.BEGAN, finding=blind),
            FindingEvent(at=AT - 239.9, change=Change.BEGAN, finding=lost),
            FindingEvent(at=AT - 20, change=Change.ENDED, finding=lost),
        ),
        actions=(
            taint(AT - 239.5, Result.INTENDED),
            taint(AT - 239.4, Result.FAILED, detail="409: the node was changed meanwhile"),
            taint(AT - 239.2, Result.DONE, number=2),
        ),
    )
