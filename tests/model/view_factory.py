"""A View in which everything is known, for tests and benchmarks of what leaves through /metrics."""

import msgspec

from gpuwatch.model.consent import Consents, PodConsent
from gpuwatch.model.finding import Finding, Health, Judgement, Severity
from gpuwatch.model.pci import pci_key
from gpuwatch.model.snapshot import (
    Activity,
    C2c,
    ClockEvents,
    Clocks,
    Driver,
    Ecc,
    Fabric,
    Gpu,
    GpuProcess,
    GpuState,
    GpuStatus,
    Host,
    Identity,
    License,
    Memory,
    MigInstance,
    NvLink,
    Pcie,
    Power,
    RetiredPages,
    RowRemap,
    Snapshot,
    SourceStatus,
    Temperature,
    Utilization,
    Vgpu,
    VideoSessions,
)
from gpuwatch.model.view import AgentStatus, PodEnergy, View
from gpuwatch.model.workload import Attribution, DeviceUse, Holder, PodUsage, ProcessOwner, Workload
from gpuwatch.model.xid import SxidCount, XidCount

AT = 1_790_000_000.25
GIB = 1024**3
REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
DURATIONS = ("sw_power_cap", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability")
LINK_ERRORS = ("crc_flit", "crc_data", "replay", "recovery", "ecc_data")
ECC_LOCATIONS = ("total", "dram", "sram", "l1_cache", "l2_cache", "register_file")


def uuid(index: int) -> str:
    return f"GPU-{index:08x}-1111-2222-3333-444455556666"


def identity(index: int) -> Identity:
    return Identity(
        index=index,
        uuid=uuid(index),
        pci_bus_id=f"00000000:{0x1B + index:02X}:00.0",
        name="NVIDIA H100 80GB HBM3",
        architecture="Hopper",
        compute_capability="9.0",
        serial=f"16533230{index:05}",
        vbios="96.00.74.00.01",
        minor=index,
        chassis_serial="1660623000145",
        slot=9,
        tray=4,
        host=1,
        module=index + 1,
    )


def xid_count(of: Identity, xid: int, count: int = 0, last: float | None = None) -> XidCount:
    return XidCount(xid=xid, uuid=of.uuid, pci=pci_key(of.pci_bus_id), count=count, last=last)


def workload(index: int) -> Workload:
    return Workload(namespace="ml", pod=f"train-{index}", container="main", pod_uid=f"uid-{index}")


def link(number: int, seed: int) -> NvLink:
    return NvLink(
        link=number,
        active=True,
        speed_bytes_per_second=26.562e9,
        version="4.0",
        remote_pci="00000000:C6:00.0",
        transmit_bytes=seed * 1000003 + number,
        receive_bytes=seed * 2000003 + number,
        errors=dict.fromkeys(LINK_ERRORS, number),
        effective_ber=1.5e-15,
        symbol_ber=1.2e-13,
        fec_history={"0": 1000 + number, "1": number},
    )


def mig(gi: int) -> MigInstance:
    return MigInstance(
        index=gi,
        uuid=f"MIG-{gi}",
        gi=gi,
        ci=0,
        profile="1g.10gb",
        memory=Memory(total=10 * GIB, used=gi * GIB, free=(10 - gi) * GIB, reserved=GIB // 16),
        bar1=Memory(total=16 * GIB, used=gi),
        activity=Activity(
            graphics=0.25, sm=0.2, sm_occupancy=0.1, integer=0.01, tensor=0.05, dram=0.3, fp64=0.0, fp32=0.02,
            fp16=0.0, window_seconds=2.0,
        ),
        ecc_sram_uncorrected=0,
    )  # fmt: skip


def gpu(index: int, *, links: int = 18, seed: int = 1) -> Gpu:
    step = index + seed
    return Gpu(
        identity=identity(index),
        at=AT + seed,
        utilization=Utilization(
            gpu=0.57, memory=0.29, encoder=0.0, decoder=0.0, jpeg=0.0, ofa=0.0, gpu_mean=0.553125, gpu_max=1.0
        ),
        activity=Activity(
            graphics=0.9123, sm=0.8512, sm_occupancy=0.4021, integer=0.1, tensor=0.3311, dram=0.55, fp64=0.0,
            fp32=0.21, fp16=0.02, window_seconds=2.0,
        ),
        memory=Memory(total=80 * GIB, used=41 * GIB + step, free=38 * GIB, reserved=GIB - step),
        protected_memory=Memory(total=64 * GIB, used=GIB, free=63 * GIB),
        license=License(product="NVIDIA Virtual Compute Server", licensed=True, expires=1_800_000_000.0),
        bar1=Memory(total=128 * GIB, used=2 * GIB, free=126 * GIB),
        power=Power(
            average=431.712 + step, instant=440.1, mean=430.0, max=702.5, energy=123456.789 * step,
            limit_enforced=700.0, limit_configured=700.0, limit_default=700.0, limit_min=200.0, limit_max=700.0,
        ),
        temperature=Temperature(
            gpu=61.0, memory=70.0, margin=26.0, threshold_shutdown=92.0, threshold_slowdown=89.0,
            threshold_max_operating=87.0, threshold_memory_max=95.0, threshold_target=85.0, margin_shutdown=-5.0,
            margin_slowdown=-2.0, margin_max_operating=0.0, margin_memory_max=0.0,
        ),
        clocks=Clocks(
            graphics=1.98e9, sm=1.98e9, memory=2.619e9, video=1.545e9,
            graphics_max=1.98e9, sm_max=1.98e9, memory_max=2.619e9, video_max=1.545e9,
        ),
        clock_events=ClockEvents(
            active={reason: reason == "sw_power_cap" for reason in REASONS},
            seconds={reason: 12.5 * step for reason in DURATIONS},
        ),
        performance_state=0,
        fans=(0.3, 0.35),
        pcie=Pcie(
            generation=5, generation_max=5, width=16, width_max=16, replays=step,
            transmit_bytes=step * 10**9, receive_bytes=step * 2 * 10**9, transmit_rate=1e9, receive_rate=2e9,
        ),
        c2c=C2c(enabled=True, links=10, bytes_per_second=450e9),
        encoder=VideoSessions(sessions=1, frames_per_second=60, latency_seconds=0.004),
        frame_capture=VideoSessions(sessions=1, frames_per_second=30, latency_seconds=0.002),
        nvlinks=tuple(link(number, step) for number in range(links)),
        ecc=Ecc(
            enabled=True,
            pending=True,
            counts={
                f"{kind}/{scope}/{location}": step
                for kind in ("corrected", "uncorrected")
                for scope in ("volatile", "aggregate")
                for location in ECC_LOCATIONS
            },
            sram_threshold_exceeded=False,
            channel_repair_pending=False,
            tpc_repair_pending=False,
            unrepairable_memory=False,
        ),
        row_remap=RowRemap(
            corrected=0, uncorrected=1, pending=False, failure=False,
            banks={"max": 640, "high": 0, "partial": 0, "low": 0, "none": 0},
        ),
        retired_pages=RetiredPages(single_bit=0, double_bit=2, pending=False),
        recovery_action=0,
        fabric=Fabric(state=3, status=0, clique_id=0, cluster_uuid="0a0b0c0d-0000-0000-0000-000000000001"),
        persistence_mode=True,
        mig_enabled=False,
        processes=(
            GpuProcess(pid=1000 + index, type="compute", name="/usr/bin/python3 --token=x", used_memory=40 * GIB,
                       sm_utilization=0.55),
        ),
        vgpus=(Vgpu(uuid=f"vgpu-{index}", instance=1, type="GRID H100-8C", vm="vm-1", vm_name="guest",
                    used_memory=GIB, utilization=0.1, licensed=True),),
        read_seconds=0.0123,
    )  # fmt: skip


def labelled(pod: Workload, team: str | None = "vision") -> PodConsent:
    """A pod with the label `team`; None: that of so many pods that its own is left out."""
    labels = None if team is None else {"label_team": team, "annotation_example_com_cost_center": "4711"}
    return PodConsent(namespace=pod.namespace or "", name=pod.pod or "", uid="", labels=labels)


def full_view(gpus: int = 8, *, links: int = 18, instances: int = 2, seed: int = 1) -> View:
    """Every GPU full of readings; the last one is cut into `instances` MIG instances. A higher `seed` is later."""
    seen = [gpu(index, links=links, seed=seed) for index in range(gpus)]
    seen[-1] = msgspec.structs.replace(seen[-1], mig_enabled=True, mig=tuple(mig(gi) for gi in range(1, instances + 1)))
    last = seen[-1].identity.uuid
    whole = [one.identity for one in seen[:-1]]
    devices = [
        DeviceUse(gpu=i.uuid, allocated=True, holders=(Holder(workload=workload(i.index), resource="nvidia.com/gpu"),))
        for i in whole
    ]
    sliced = [
        DeviceUse(gpu=last, mig=f"MIG-{gi}", gi=gi, ci=0, profile="1g.10gb", allocated=False)
        for gi in range(1, instances + 1)
    ]
    return View(
        snapshot=Snapshot(
            at=AT + seed,
            interval=2.0,
            driver=Driver(
                version="570.86.15", nvml="12.570.86.15", cuda="12.8", confidential=True, confidential_debug=False
            ),
            gpus=tuple(seen),
            statuses=tuple(GpuStatus(identity=one.identity, state=GpuState.FRESH) for one in seen),
            sources=(
                SourceStatus(name="nvml", up=True, duration_seconds=0.02, last_success=AT, failures=0),
                SourceStatus(name="kmsg", up=False, reason="permission denied", failures=3),
                SourceStatus(name="gpm", up=None, reason="switched off"),
            ),
            bus=tuple(one.identity.pci_bus_id for one in seen),
            expected_gpus=gpus,
            host=Host(boot_id="3d9bd8a5-8e0f-4a4b-9d3c-2b2f6a0f7c11"),
            node="gpu-node-1",
        ),
        agent=AgentStatus(version="1", started=AT, reader_restarts=1, kmsg_lost=2, unknown_xids=3),
        attribution=Attribution(
            devices=(*devices, *sliced),
            usage=tuple(
                PodUsage(gpu=i.uuid, workload=workload(i.index), processes=1, memory=40 * GIB, utilization=0.55)
                for i in whole
            ),
        ),
        owners=tuple(
            ProcessOwner(pid=1000 + i.index, start_time=1, name="python3", user="ann", workload=workload(i.index))
            for i in whole
        ),
        pod_energy=tuple(PodEnergy(gpu=i.uuid, workload=workload(i.index), joules=1.5 * seed) for i in whole),
        xids=(
            *(xid_count(one.identity, xid) for one in seen for xid in (48, 79, 94)),
            xid_count(identity(0), 13, count=2, last=AT - 10),
        ),
        sxids=(SxidCount(sxid=12028, switch=0, severity="non-fatal", count=1),),
        judgement=Judgement(
            node=Health.DEGRADED,
            gpus={one.identity.uuid: Health.HEALTHY for one in seen},
            findings=(
                Finding(check="ecc", severity=Severity.WARNING, message="m", gpu=uuid(0)),
                Finding(check="bus", severity=Severity.INFO, message="m"),
            ),
        ),
        consents=Consents(
            at=AT,
            node_labels={"label_topology_kubernetes_io_zone": "a"},
            pods=(*(labelled(workload(i.index)) for i in whole), labelled(workload(gpus), None)),
        ),
    )
