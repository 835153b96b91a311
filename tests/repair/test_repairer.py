"""A reset from the finding to the GPU that answers again: the order, the refusals, the tries, what a crash leaves."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpuwatch.agent.repairs import keep_validations, repairer_status, validations
from gpuwatch.config import SupportConfig
from gpuwatch.diagnose.validation import ValidationCommand, ValidationRun
from gpuwatch.model.clock import Clock
from gpuwatch.model.event import Result
from gpuwatch.model.finding import Remedy, Response
from gpuwatch.model.snapshot import Host, SourceStatus
from gpuwatch.model.view import Validation, View
from gpuwatch.model.workload import Attribution, DeviceUse, Holder
from gpuwatch.remediation.service.status import RemediatorStatusFile
from gpuwatch.repair.repairer import SETTLE_SECONDS
from gpuwatch.repair.reset import RepairRecord, ResetUnderWay, record_file
from gpuwatch.storage.versioned_file import VersionedFile
from tests.model import views
from tests.repair.machine import BOOT, START, Machine

UUID = views.uuid(0)


def test_a_sick_gpu_that_nothing_uses_is_reset_and_named_by_its_uuid(machine: Machine) -> None:
    assert machine.step() == "repaired: it was reset"
    assert machine.calls == [f"--gpu-reset -i {UUID}"]
    assert [(each.action, each.target, each.result) for each in machine.actions] == [
        ("reset_gpu", f"gpu/{UUID}", Result.INTENDED),
        ("reset_gpu", f"gpu/{UUID}", Result.DONE),
        ("repaired", f"gpu/{UUID}", Result.DONE),
    ]
    assert "successfully reset" in machine.actions[1].detail
    assert machine.declared == {UUID}
    record = record_file(machine.state).read()
    assert record is not None
    assert record.under_way is None
    assert record.tries == {UUID: (START,)}


def test_persistence_mode_is_switched_off_and_restored(machine: Machine) -> None:
    """The fake answers as the driver does: while the mode is on, the GPU is in use by another client."""
    machine.gpu = replace(machine.gpu, persistence_mode=True)
    machine.file("persistence")
    assert machine.step().startswith("repaired")
    assert machine.calls == [f"-i {UUID} -pm 0", f"--gpu-reset -i {UUID}", f"-i {UUID} -pm 1"]
    assert machine.exists("persistence")


def test_persistence_mode_is_restored_when_the_reset_fails(machine: Machine) -> None:
    machine.gpu = replace(machine.gpu, persistence_mode=True)
    machine.file("persistence")
    machine.file("refuses", "GPU reset failed")
    assert machine.step().startswith("failed: ")
    assert machine.exists("persistence")


def test_a_mode_that_cannot_be_switched_off_stops_the_reset(machine: Machine) -> None:
    machine.gpu = replace(machine.gpu, persistence_mode=True)
    machine.file("stuck")
    assert machine.step().startswith("failed: persistence mode could not be switched off: ")
    assert machine.resets == 0


@pytest.mark.parametrize(
    ("gpu", "why"),
    [
        ({"processes": (views.process(7),)}, "in use by 1 process"),
        ({"processes": None}, "whether it is in use is not known"),
        ({"virtualization_mode": "passthrough"}, "virtualization mode is passthrough"),
        ({"virtualization_mode": "host_vgpu"}, "virtualization mode is host_vgpu"),
        ({"virtualization_mode": None}, "whether this is a virtual machine is not known"),
        ({"mig_enabled": True}, "MIG instances"),
        ({"mig_enabled": None}, "whether it is in MIG mode is not known"),
        ({"memory": views.gpu(0).memory}, "of its memory are in use by processes that cannot be seen"),
    ],
)
def test_a_gpu_with_work_or_in_a_virtual_machine_is_never_reset(machine: Machine, gpu: Any, why: str) -> None:
    machine.gpu = replace(machine.gpu, **gpu)
    assert why in machine.step()
    assert machine.calls == []


@pytest.mark.parametrize("holders", [(), (Holder(workload=views.TRAIN, resource="nvidia.com/gpu"),)])
def test_a_gpu_that_a_pod_has_is_never_reset(machine: Machine, holders: Any) -> None:
    machine.changes = {"attribution": Attribution(devices=(DeviceUse(gpu=UUID, allocated=True, holders=holders),))}
    assert "allocated to" in machine.step()
    assert machine.calls == []


def test_without_the_kubelets_answer_nothing_is_reset(machine: Machine) -> None:
    snapshot = machine.view().snapshot
    sources = (SourceStatus(name="podresources", up=False, reason="no answer"),)
    machine.changes = {"snapshot": replace(snapshot, sources=sources)}
    assert "whether a pod has it is not known: no answer" in machine.step()
    assert machine.calls == []


def test_another_client_that_nvml_does_not_list_stops_the_reset(machine: Machine) -> None:
    machine.process(4711, "dcgm-exporter", "/dev/nvidiactl", "/dev/nvidia0")
    assert machine.step() == "failed: in use by another client: dcgm-exporter (pid 4711)"
    assert machine.resets == 0


def test_a_gpu_that_is_in_use_is_not_tried_so_it_is_never_given_up(machine: Machine) -> None:
    """Else whoever keeps a device file open, for some minutes, would turn a reset into a reboot."""
    machine.process(4711, "monitor", "/dev/nvidia0")
    for _ in range(5):
        assert "in use by another client" in machine.step()
        assert "in use by another client" in machine.step(), "nor is the agent asked to close it at each look"
        machine.wait(SETTLE_SECONDS)
    assert not (record_file(machine.state).read() or RepairRecord()).tries


def test_a_gpu_is_proven_once_and_again_after_another_fault(machine: Machine) -> None:
    """The agent of this test reads no result: a real one does so within ten seconds."""
    proven: list[frozenset[int]] = []

    def prove(view: View, indexes: frozenset[int], clock: Clock, command: ValidationCommand) -> ValidationRun:
        proven.append(indexes)
        return ValidationRun((Validation(gpu=UUID, at=clock.time(), boot_id=BOOT, passed=True),), {})

    machine.findings = ()
    machine.config = replace(machine.config, remediation=replace(machine.config.remediation, validate="active"))
    machine.prove = prove
    machine.start()
    before = Validation(gpu=UUID, at=machine.clock.time(), boot_id="boot-0", passed=True)
    keep_validations(machine.store, [before], "repairer")  # of another boot, so for the remediator none
    for _ in range(3):
        machine.step()
        machine.wait(1.0)
    assert proven == [{0}], "GPU 1 is in use"
    validations(machine.store, [machine.finding("xid_fatal", since=machine.clock.time())])  # as the agent removes it
    machine.step()
    assert proven == [{0}, {0}]


def test_a_gpu_is_proven_again_after_a_contained_fault_that_takes_the_node(machine: Machine) -> None:
    """The agent keeps the earlier proof, as restarting the application is all it asks; the remediator wants a newer."""
    proven: list[float] = []

    def prove(view: View, indexes: frozenset[int], clock: Clock, command: ValidationCommand) -> ValidationRun:
        proven.append(clock.time())
        return ValidationRun((Validation(gpu=UUID, at=clock.time(), boot_id=BOOT, passed=True),), {})

    settings = replace(machine.config.remediation, validate="active", checks={"xid_contained": Response.TAINT})
    machine.config, machine.findings, machine.prove = replace(machine.config, remediation=settings), (), prove
    machine.start()
    machine.step()
    machine.wait(1.0)
    fault = machine.finding("xid_contained", Remedy.RESTART_APP, since=machine.clock.time(), xid=94)
    assert validations(machine.store, [fault])
    machine.wait(1.0)
    machine.findings = (fault,)
    machine.step()
    machine.findings = ()
    for _ in range(3):
        machine.wait(1.0)
        machine.step()
    assert len(proven) == 2


def test_a_file_that_is_merely_called_like_the_gpu_stops_nothing(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own/nvidia0").touch()
    machine.process(4711, "sleep", str(tmp_path / "own/nvidia0"))
    assert machine.step().startswith("repaired")


def test_a_device_file_that_was_renamed_is_known_by_its_number(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "gpu").symlink_to("/dev/null")
    machine.process(4711, "sleep", str(tmp_path / "gpu"))
    assert machine.step() == "failed: in use by another client: sleep (pid 4711)"


def test_a_container_that_does_not_see_the_machines_processes_resets_nothing(machine: Machine) -> None:
    machine.process(2, "sh")
    assert "does not show all processes" in machine.step()
    assert machine.resets == 0


def test_an_agent_that_does_not_close_the_gpu_stops_the_reset(machine: Machine) -> None:
    machine.closes = False
    assert machine.step() == "failed: the agent does not close the GPU"
    assert machine.resets == 0


def test_the_agent_may_read_the_gpu_again_whatever_happened(machine: Machine) -> None:
    machine.file("refuses", "no")
    machine.step()
    status = repairer_status(machine.store)
    assert status is not None
    assert status.closed is None


@pytest.mark.parametrize("changes", [{"quarantined": False}, None])
def test_a_node_that_is_not_out_of_service_is_left_alone(machine: Machine, changes: Any) -> None:
    if changes is None:
        RemediatorStatusFile(str(machine.state)).clear()
    else:
        machine.quarantine(**changes)
    assert "does not hold this node's quarantine" in machine.step()
    assert machine.calls == []


def test_a_view_of_another_boot_is_not_acted_on(machine: Machine) -> None:
    machine.changes = {"snapshot": replace(machine.view().snapshot, host=Host(boot_id="boot-0"))}
    assert machine.step() == ""
    assert machine.calls == []


def test_another_tool_may_hold_the_quarantine(make: Any) -> None:
    machine = make(quarantined_only=False)
    RemediatorStatusFile(str(machine.state)).clear()
    machine.step()
    assert machine.resets == 1


@pytest.mark.parametrize("remedy", [Remedy.REBOOT_NODE, Remedy.INSPECT, Remedy.RESTART_APP])
def test_a_fault_that_a_reset_does_not_cure_is_no_reason(machine: Machine, remedy: Remedy) -> None:
    more = machine.finding("row_remap_failure" if remedy is Remedy.INSPECT else "gpu_lost", remedy)
    reset = (machine.finding("xid_fatal"),) if remedy is not Remedy.RESTART_APP else ()
    machine.findings = (*reset, more)
    assert machine.step() == ""
    assert machine.calls == []


def test_mode_observe_says_it_once_and_touches_nothing(make: Any) -> None:
    machine = make(mode="observe")
    assert machine.step() == "waiting: mode observe: it would be reset now"
    machine.step()
    assert [(each.action, each.result) for each in machine.actions] == [("reset_gpu", Result.OBSERVED)]
    assert machine.calls == []
    assert not record_file(machine.state).path.exists()


def test_after_so_many_tries_it_gives_up_and_says_the_next_step(machine: Machine) -> None:
    machine.file("refuses", "GPU reset failed\033[2J")
    assert "GPU reset failed" in machine.step()
    assert "\033" not in machine.actions[-1].detail
    assert "is given time" in machine.step(), "no second try at once"
    machine.wait(SETTLE_SECONDS)
    assert machine.step().startswith("failed")
    machine.wait(SETTLE_SECONDS)
    assert machine.step() == "given_up: 2 resets did not help; the next step is a reboot"
    machine.wait(3600)
    machine.start()
    assert machine.step().startswith("given_up"), "a new process counts the tries of the one before"
    assert machine.resets == 2


def test_nvlink_peers_are_named_when_the_driver_refuses(machine: Machine) -> None:
    peer = replace(machine.gpu.nvlinks[0], remote_pci=views.identity(1).pci_bus_id)
    machine.gpu = replace(machine.gpu, nvlinks=(peer,))
    machine.file("refuses", "must be reset together with its peers")
    assert f"joined by NVLink to GPU 1 ({views.uuid(1)})" in machine.step()


def test_a_reset_that_hangs_is_given_up_at_its_deadline(make: Any) -> None:
    machine = make(deadline=0.05)
    machine.file("hangs")
    assert "has not ended within" in machine.step()


def test_one_reset_at_a_time(machine: Machine) -> None:
    machine.findings = (machine.finding("xid_fatal"), machine.finding("xid_fatal", gpu=views.uuid(1)))
    machine.changes = {}
    machine.step()
    assert machine.calls == [f"--gpu-reset -i {UUID}"], "the other one is at work"


def test_what_a_repairer_that_died_had_changed_is_restored(machine: Machine) -> None:
    left = ResetUnderWay(gpu=UUID, index=0, at=START, boot_id=BOOT, persistence=True)
    record_file(machine.state).write(RepairRecord(under_way=left, tries={UUID: (START,)}))
    machine.start()
    assert machine.calls == [f"-i {UUID} -pm 1"]
    assert machine.actions[-1].result is Result.FAILED
    record = record_file(machine.state).read()
    assert record == RepairRecord(tries={UUID: (START,)})


def test_a_record_that_cannot_be_read_stops_everything(machine: Machine) -> None:
    record_file(machine.state).path.write_text("{}")
    record_file(machine.state).path.chmod(0o640)
    with pytest.raises(Exception, match=r"repair\.json"):
        machine.step()
    assert machine.calls == []


def test_the_try_is_on_the_disk_before_anything_is_changed(machine: Machine) -> None:
    """The fake nvidia-smi keeps the record as it is at its first call."""
    machine.gpu = replace(machine.gpu, persistence_mode=True)
    machine.step()
    seen = VersionedFile(machine.folder / "seen", RepairRecord).read()
    begun = ResetUnderWay(gpu=UUID, index=0, at=START, boot_id=BOOT, persistence=True)
    assert seen == RepairRecord(under_way=begun, tries={UUID: (START,)})


BUG_REPORT = '#!/bin/sh\n[ ! -e %s/stops ] || exit 3\necho report > "$1.gz"\necho more > "$1.tmp"\n'


def _reporting(machine: Machine) -> Machine:
    program = machine.folder / "bug-report"
    program.write_text(BUG_REPORT % machine.folder)
    program.chmod(0o755)
    machine.config = replace(machine.config, support=SupportConfig(bug_report=(str(program), "{file}")))
    machine.start()
    return machine


def test_a_bug_report_is_kept_before_the_first_reset(machine: Machine) -> None:
    assert _reporting(machine).step().startswith("repaired")
    assert [each.name for each in (machine.state / "support").iterdir()] == ["20260921T141320Z-bug_report.log.gz"]
    assert [each.action for each in machine.actions][:2] == ["support_case", "reset_gpu"]


def test_a_bug_report_that_fails_does_not_prevent_the_reset(machine: Machine) -> None:
    machine.file("stops")
    assert _reporting(machine).step().startswith("repaired")
    assert machine.actions[0].result is Result.FAILED
    assert "it ended with 3" in machine.actions[0].detail
    assert list((machine.state / "support").iterdir()) == []


def test_work_that_came_during_the_bug_report_stops_the_reset(machine: Machine) -> None:
    _reporting(machine)
    program = machine.folder / "bug-report"
    program.write_text(f"#!/bin/sh\nrm -f {machine.state}/remediator-state.json\ntouch $1\n")
    assert "does not hold this node's quarantine" in machine.step()
    assert machine.resets == 0


def test_a_report_is_not_made_again_while_its_reset_waits_also_by_a_new_process(machine: Machine) -> None:
    _reporting(machine)
    program = machine.folder / "bug-report"
    program.write_text(f"#!/bin/sh\necho x >> {machine.folder}/reports\ntouch $1\n")
    program.chmod(0o755)
    machine.process(4711, "monitor", "/dev/nvidia0")
    for _ in range(3):
        assert "in use by another client" in machine.step()
        machine.wait(SETTLE_SECONDS)
        machine.start()
    assert (machine.folder / "reports").read_text() == "x\n"
