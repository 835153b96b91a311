"""METRICS: every family of the contract is there, says what the View says, and says nothing about what is unknown."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from gpuwatch.config import MetricsConfig
from gpuwatch.metrics.metric import PREFIX, Family, unit
from gpuwatch.metrics.native import METRICS, cap, collect
from gpuwatch.metrics.process import SELF_METRICS
from gpuwatch.model.finding import Finding, Judgement, Severity
from gpuwatch.model.snapshot import Gpu, GpuProcess, GpuState, GpuStatus, Snapshot
from gpuwatch.model.view import AgentStatus, PodEnergy, SupportCase, View
from gpuwatch.model.workload import Attribution, Container, DeviceUse, Holder, PodUsage, ProcessOwner, Workload
from gpuwatch.remediation.service.pages import REMEDIATOR_METRICS
from gpuwatch.rightsizing.service.metrics import rightsizing_families
from gpuwatch.tuning.service.metrics import TUNER_METRICS
from tests.metrics.golden_pages import EVERYTHING, FOLDER, PAGES, render
from tests.metrics.page import SCOPE_LABELS, all_rows, markdown
from tests.model.view_factory import AT, full_view, identity, mig, uuid, workload, xid_count
from tests.rightsizing.model.advice_factory import advice, recommendation

INLINE = MetricsConfig(workload_labels="inline")
CONTRACT = """
build_info driver_info gpu_info gpus gpu_utilization_ratio gpu_memory_utilization_ratio gpu_encoder_utilization_ratio
gpu_decoder_utilization_ratio gpu_jpeg_utilization_ratio gpu_ofa_utilization_ratio gpu_graphics_active_ratio
gpu_sm_active_ratio gpu_tensor_active_ratio gpu_fp64_active_ratio gpu_fp32_active_ratio gpu_fp16_active_ratio
gpu_integer_active_ratio gpu_dram_active_ratio gpu_sm_occupancy_ratio gpu_memory_total_bytes gpu_memory_used_bytes
gpu_memory_free_bytes gpu_memory_reserved_bytes gpu_bar1_total_bytes gpu_bar1_used_bytes gpu_power_watts{window}
gpu_power_limit_watts{limit} gpu_energy_joules_total gpu_temperature_celsius{sensor}
gpu_temperature_threshold_celsius{threshold} gpu_temperature_margin_celsius gpu_clock_hertz{domain}
gpu_clock_max_hertz{domain} gpu_clock_event_active{reason} gpu_clock_event_seconds_total{reason} gpu_performance_state
gpu_fan_speed_ratio{fan} gpu_pcie_link_generation{state} gpu_pcie_link_width{state} gpu_pcie_replays_total
gpu_pcie_transmit_bytes_total gpu_pcie_receive_bytes_total gpu_nvlink_active{link} gpu_nvlink_transmit_bytes_total{link}
gpu_nvlink_receive_bytes_total{link} gpu_nvlink_errors_total{link,error} gpu_ecc_errors_total{type,scope,location}
gpu_row_remaps_total{cause} gpu_row_remap_pending gpu_row_remap_failure gpu_row_remap_banks{availability}
gpu_retired_pages{cause} gpu_retired_pages_pending gpu_xid_errors_total{xid} gpu_xid_last_timestamp_seconds{xid}
nvswitch_sxid_errors_total{switch,sxid,severity} gpu_recovery_action gpu_fabric_state gpu_mig_mode_enabled
gpu_ecc_mode_enabled gpu_persistence_mode_enabled gpu_workload_info{namespace,pod,container,pod_uid,resource}
gpu_allocated pod_gpu_memory_bytes{namespace,pod,container} pod_gpu_utilization_ratio{namespace,pod,container}
pod_gpu_energy_joules_total{namespace,pod,container,method} process_gpu_memory_bytes{pid,name,type}
process_gpu_utilization_ratio{pid,name,type} vgpu_info vgpu_memory_used_bytes{vgpu,type,vm}
vgpu_utilization_ratio{vgpu,type,vm} vgpu_licensed{vgpu,type,vm} finding{check,severity} gpu_health{state}
node_health{state} source_up{source,reason} source_duration_seconds{source}
source_last_success_timestamp_seconds{source}
source_failures_total{source} snapshot_timestamp_seconds gpu_unresponsive reader_restarts_total kmsg_lost_records_total
support_cases unknown_xid_errors_total
"""


def families(view: View, config: MetricsConfig = EVERYTHING, extra: Sequence[Family] = ()) -> dict[str, Family]:
    return {family.name.removeprefix(PREFIX): family for family in collect(view, config, extra=extra)}


def values(family: Family) -> dict[tuple[str, ...], float]:
    """Own label values -> number, of a family about one subject."""
    return {tuple(value or "" for value in own): number for (_, own), number in family.samples}


def bare(*gpus: Gpu, **members: object) -> View:
    """A View in which nothing is known but `gpus` and `members`."""
    statuses = tuple(GpuStatus(identity=gpu.identity, state=GpuState.FRESH) for gpu in gpus)
    snapshot = Snapshot(at=AT, interval=2.0, gpus=gpus, statuses=statuses)
    return msgspec.structs.replace(View(snapshot=snapshot, agent=AgentStatus(version="1", started=AT)), **members)


@pytest.mark.parametrize("entry", CONTRACT.split())
def test_the_contract_is_kept(entry: str) -> None:
    name, _, labels = entry.rstrip("}").partition("{")
    rows = {row.name: row for row in all_rows()}
    assert name in rows
    if labels:
        assert rows[name].labels == tuple(labels.split(","))


def test_no_name_is_given_twice() -> None:
    names = [row.name for row in all_rows()]
    assert sorted(set(names)) == sorted(names)


def test_every_row_reads_what_a_full_view_has() -> None:
    extra = rightsizing_families(advice(recommendation("chat", 24.0)), 20)
    assert [name for name, family in families(full_view(2), extra=extra).items() if not family.samples] == []


def test_samples_carry_the_labels_their_row_declares() -> None:
    found = families(full_view(2))
    for row in METRICS:
        for (subject, own), _ in found[row.name].samples:
            names = {part.partition("=")[0] for part in subject.split('",') if part}
            names = {name for name in names if not name.startswith(("label_", "annotation_"))}  # as configured
            assert len(own) == len(row.labels), row.name
            assert names <= set(SCOPE_LABELS[row.scope]), row.name
            if row.scope in ("gpu", "instance"):
                assert {"gpu", "uuid"} <= names, row.name
        if row.scope == "instance" and not row.name.startswith(("pod_", "process_", "gpu_workload", "workload_")):
            assert any('gi="1"' in subject for (subject, _), _ in found[row.name].samples), row.name


def test_no_series_appears_twice() -> None:
    for config in (EVERYTHING, INLINE):
        for family in collect(full_view(2), config):
            keys = [key for key, _ in family.samples]
            assert len(set(keys)) == len(keys), family.name


def test_what_is_unknown_is_absent() -> None:
    found = families(bare(Gpu(identity=identity(0))))
    with_samples = {name for name, family in found.items() if family.samples}
    assert with_samples == {
        "snapshot_timestamp_seconds",
        "reader_restarts_total",
        "kmsg_lost_records_total",
        "support_cases",
        "unknown_xid_errors_total",
        "config_last_reload_successful",
        "gpus",
        "node_health",
        "gpu_unresponsive",
        "gpu_lost",
        "gpu_info",
        "gpu_place_info",  # the identity has one
        "gpu_failed_reads",
    }
    assert set(values(found["gpus"])) == {("nvml",), ("healthy",)}


def test_support_cases_are_counted() -> None:
    kept = tuple(SupportCase(file=f"{number}.tgz", at=AT, bytes=1) for number in range(3))
    found = families(msgspec.structs.replace(bare(), support_cases=kept))
    assert values(found["support_cases"]) == {(): 3}


def test_values_are_those_of_the_gpu() -> None:
    view = full_view(1, instances=0)
    gpu, found = view.snapshot.gpus[0], families(view)
    assert values(found["gpu_power_watts"]) == {
        ("average",): gpu.power.average,
        ("instant",): gpu.power.instant,
        ("mean",): gpu.power.mean,
        ("max",): gpu.power.max,
    }
    assert values(found["gpu_row_remap_banks"]) == {(name,): n for name, n in gpu.row_remap.banks.items()}
    assert values(found["gpu_nvlink_errors_total"])["3", "replay"] == gpu.nvlinks[3].errors["replay"]
    assert (
        values(found["gpu_ecc_errors_total"])["corrected", "volatile", "dram"]
        == gpu.ecc.counts["corrected/volatile/dram"]
    )
    assert values(found["gpus"]) == {("expected",): 1, ("bus",): 1, ("nvml",): 1, ("healthy",): 1}


def test_a_lost_gpu_keeps_its_name_its_xids_and_its_state() -> None:
    lost = GpuStatus(identity=identity(3), state=GpuState.LOST)
    view = bare(xids=(xid_count(identity(3), 79, count=1, last=AT),))
    view = msgspec.structs.replace(view, snapshot=msgspec.structs.replace(view.snapshot, statuses=(lost,)))
    found = families(view)
    subject = f'gpu="3",uuid="{uuid(3)}"'
    assert found["gpu_xid_errors_total"].samples == [((subject, ("79",)), 1)]
    assert found["gpu_lost"].samples == [((subject, ()), True)]
    assert [key[0] for key, _ in found["gpu_info"].samples] == [subject]
    assert values(found["gpus"])[("nvml",)] == 0


def test_xids_stand_at_zero_before_the_first() -> None:
    found = families(bare(Gpu(identity=identity(0)), xids=(xid_count(identity(0), 79),)))
    assert values(found["gpu_xid_errors_total"]) == {("79",): 0}
    assert found["gpu_xid_last_timestamp_seconds"].samples == []


def test_an_xid_known_by_address_only_finds_its_gpu_or_keeps_the_address() -> None:
    at_address = msgspec.structs.replace(xid_count(identity(0), 79, count=2, last=AT), uuid=None)
    nobody = msgspec.structs.replace(at_address, pci="0000:ff:00")
    known = xid_count(identity(0), 79, count=1, last=AT - 5)
    found = families(bare(Gpu(identity=identity(0)), xids=(known, at_address, nobody)))
    subject = f'gpu="0",uuid="{uuid(0)}"'
    assert dict(found["gpu_xid_errors_total"].samples) == {
        (subject, ("79",)): 3,
        ('pci_bus_id="0000:ff:00"', ("79",)): 2,
    }
    assert dict(found["gpu_xid_last_timestamp_seconds"].samples)[subject, ("79",)] == AT


def test_findings_say_the_gpu_or_nothing() -> None:
    two = [Finding(check="ecc", severity=Severity.WARNING, message=text, gpu=uuid(0)) for text in ("a", "b")]
    whole = Finding(check="bus", severity=Severity.CRITICAL, message="m")
    found = families(bare(Gpu(identity=identity(0)), judgement=Judgement(findings=(*two, whole))))
    assert found["finding"].samples == [
        ((f'gpu="0",uuid="{uuid(0)}"', ("ecc", "warning")), 1),
        (("", ("bus", "critical")), 1),
    ]


def test_several_xids_of_a_check_are_one_series_of_the_worst_severity() -> None:
    several = [
        Finding(check="xid_warning", severity=severity, message="m", gpu=uuid(0), xid=xid)
        for xid, severity in ((44, Severity.INFO), (32, Severity.WARNING), (37, Severity.INFO))
    ]
    found = families(bare(Gpu(identity=identity(0)), judgement=Judgement(findings=tuple(several))))
    assert found["finding"].samples == [((f'gpu="0",uuid="{uuid(0)}"', ("xid_warning", "warning")), 1)]


def devices(*holders: Workload, gi: int | None = None) -> Attribution:
    return Attribution(
        devices=(
            DeviceUse(gpu=uuid(0), gi=gi, allocated=bool(holders), holders=tuple(Holder(workload=w) for w in holders)),
        )
    )


def test_inline_labels_are_of_a_sole_holder_only() -> None:
    gpu = full_view(1, instances=0).snapshot.gpus[0]
    label = 'pod="train-0"'
    for attribution, expected in (
        (devices(workload(0)), True),
        (devices(workload(0), workload(1)), False),
        (devices(), False),
        (devices(workload(0), gi=1), False),
    ):
        found = families(bare(gpu, attribution=attribution), INLINE)
        subjects = {subject for (subject, _), _ in found["gpu_memory_used_bytes"].samples}
        assert [label in subject for subject in subjects] == [expected]
        assert all(label not in subject for (subject, _), _ in found["gpu_workload_info"].samples)


def test_inline_labels_of_a_mig_instance_leave_the_gpu_alone() -> None:
    gpu = Gpu(identity=identity(0), memory=mig(1).memory, mig=(mig(1), mig(2)))
    found = families(bare(gpu, attribution=devices(workload(0), gi=2)), INLINE)
    subjects = [subject for (subject, _), _ in found["gpu_memory_used_bytes"].samples]
    assert ['gi="2"' in subject for subject in subjects] == ['pod="train-0"' in subject for subject in subjects]
    assert len(subjects) == 3


def test_info_mode_puts_no_workload_on_gpu_series() -> None:
    found = families(full_view(2), MetricsConfig())
    assert all("namespace" not in subject for family in found.values() for (subject, _), _ in family.samples)


def test_compute_instances_of_one_gpu_instance_do_not_repeat_its_series() -> None:
    pair = (mig(1), msgspec.structs.replace(mig(1), ci=1, uuid="MIG-1-1"))
    found = families(bare(Gpu(identity=identity(0), mig=pair)))
    assert len(found["gpu_memory_used_bytes"].samples) == 1
    assert {own for (_, own), _ in found["mig_info"].samples} == {("0", "MIG-1"), ("1", "MIG-1-1")}


def test_pods_without_a_name_go_by_their_uid_and_equal_labels_add_up() -> None:
    nameless = [Workload(pod_uid="u-1"), Workload(pod_uid="u-2")]
    usage = tuple(
        PodUsage(gpu=uuid(0), workload=one, memory=memory) for one, memory in zip(nameless, (1, 2), strict=True)
    )
    twice = tuple(PodEnergy(gpu=uuid(0), workload=nameless[0], joules=joules) for joules in (1.0, 2.5))
    found = families(bare(Gpu(identity=identity(0)), attribution=Attribution(usage=usage), pod_energy=twice))
    assert values(found["pod_gpu_memory_bytes"]) == {("", "u-1", ""): 1, ("", "u-2", ""): 2}
    assert values(found["pod_gpu_energy_joules_total"]) == {("", "u-1", "", "size"): 3.5}


def test_processes_are_opt_in() -> None:
    assert not {"process_gpu_memory_bytes", "process_info"} & set(families(full_view(1), MetricsConfig()))


def test_a_process_never_shows_its_command_line() -> None:
    process = GpuProcess(pid=7, type="compute", name="/opt/bin/train --password=secret", used_memory=5)
    alone = families(bare(Gpu(identity=identity(0), processes=(process,))))
    assert values(alone["process_gpu_memory_bytes"]) == {("7", "train", "compute"): 5}
    owner = ProcessOwner(pid=7, start_time=1, name="python3", user="ann")
    owned = families(bare(Gpu(identity=identity(0), processes=(process,)), owners=(owner,)))
    assert values(owned["process_gpu_memory_bytes"]) == {("7", "python3", "compute"): 5}
    assert "secret" not in str(alone) + str(owned)


def test_an_idle_gpu_has_zero_processes_and_an_unreadable_one_none() -> None:
    assert values(families(bare(Gpu(identity=identity(0), processes=())))["gpu_processes"]) == {(): 0}
    assert families(bare(Gpu(identity=identity(0), processes=None)))["gpu_processes"].samples == []


def test_the_cap_drops_whole_families_from_the_end_and_counts_them() -> None:
    whole = collect(full_view(2), EVERYTHING)
    total = sum(len(family.samples) for family in whole)
    assert cap(whole, total) == (whole, 0)
    kept, dropped = cap(whole, total // 2)
    sizes = [len(family.samples) for family in kept]
    first = sizes.index(0)
    assert sum(sizes) + dropped == total
    assert sum(sizes) <= total // 2 < sum(sizes) + len(whole[first].samples)
    assert sizes[:first] == [len(family.samples) for family in whole[:first]]
    assert not any(sizes[first:])


def test_only_what_gpuwatch_keeps_itself_outlives_the_data() -> None:
    owned = {family.name.removeprefix(PREFIX) for family in collect(full_view(2), EVERYTHING, owned_only=True)}
    assert {"gpu_xid_errors_total", "snapshot_timestamp_seconds", "pod_gpu_energy_joules_total"} <= owned
    assert not {"gpu_power_watts", "gpu_health", "gpu_energy_joules_total", "gpus", "source_up"} & owned


@pytest.mark.parametrize("page", PAGES)
def test_pages_are_as_recorded(page: str) -> None:
    """`python -m tests.metrics.golden_pages` records them anew; the difference is then for a person to judge."""
    assert render(page).decode() == (FOLDER / page).read_text()


def test_the_documentation_is_up_to_date() -> None:
    """`make generate` writes it anew."""
    assert (Path(__file__).parents[2] / "docs" / "metrics.md").read_text() == markdown()


def test_every_family_has_a_type_and_its_unit_in_its_name() -> None:
    rows = all_rows()
    assert {row.name for row in (*METRICS, *REMEDIATOR_METRICS, *TUNER_METRICS, *SELF_METRICS)} <= {
        r.name for r in rows
    }
    assert {row.type for row in rows} == {"gauge", "counter", "info", "stateset"}
    assert all(unit(row.name) in row.name for row in rows)


def test_a_workload_is_reported_by_the_nearest_thing_that_has_a_name() -> None:
    owners = tuple(
        ProcessOwner(pid=pid, start_time=1, uid=1000 + pid, **known)
        for pid, known in enumerate(
            (
                {"slurm_job": "4711", "slurm_step": "0", "user": "ada", "slurm_account": "physics"},
                {"container_id": "c" * 64},
                {"container_id": "d" * 64, "container": Container("lab-train-1", "train:1.2", "lab", "train")},
                {"unit": "train.service"},
                {"user": "bob"},
                {"pod_uid": "not-outside-of-pods"},
            )
        )
    )
    processes = tuple(GpuProcess(pid=pid, type="compute") for pid in range(len(owners)))
    held = devices(Workload(namespace="ml", pod="train-0", container="main"))
    found = families(bare(Gpu(identity=identity(0), processes=processes), owners=owners, attribution=held))
    assert [labels for (_, labels), _ in found["workload_info"].samples] == [
        ("pod", "ml", "train-0", "main", None, None, None, None, None, None, None),
        ("slurm", None, "4711", None, "ada", "0", "physics", None, None, None, None),
        ("container", None, "c" * 12, None, "1001", None, None, None, None, None, None),
        ("container", None, "lab-train-1", None, "1002", None, None, None, "train:1.2", "lab", "train"),
        ("unit", None, "train.service", None, "1003", None, None, None, None, None, None),
        ("user", None, "bob", None, "bob", None, None, None, None, None, None),
    ]


def test_what_processes_outside_of_pods_use_is_summed_for_their_workload() -> None:
    job = {"slurm_job": "4711", "slurm_step": "0", "user": "ada"}
    owners = (
        ProcessOwner(pid=1, start_time=1, uid=1, **job),
        ProcessOwner(pid=2, start_time=1, uid=1, **{**job, "slurm_step": "1"}),
        ProcessOwner(pid=3, start_time=1, uid=1, user="bob"),
        ProcessOwner(pid=4, start_time=1, uid=1, pod_uid="not-outside-of-pods"),
    )
    used = ((1, 2.0, 0.25), (2, 3.0, 0.5), (3, 5.0, None), (4, 7.0, 0.125))
    processes = tuple(GpuProcess(pid=pid, type="compute", used_memory=m, sm_utilization=u) for pid, m, u in used)
    found = families(bare(Gpu(identity=identity(0), processes=processes), owners=owners))
    assert values(found["workload_gpu_memory_bytes"]) == {("slurm", "4711"): 5.0, ("user", "bob"): 5.0}
    assert values(found["workload_gpu_utilization_ratio"]) == {("slurm", "4711"): 0.75}
