"""The state folder of a node as this version writes it, and what this version reads in one.

`python -m tests.states.written` writes tests/states/VERSION anew, once in a release: from then on each later version
must read in it what this one does.
"""

import json
import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch import __version__
from gpuwatch.agent.repairs import (
    keep_validations,
    mark_repaired,
    publish_repairer,
    repaired_at,
    repairer_status,
    validations,
)
from gpuwatch.consents.file import ConsentsFile, progress_file
from gpuwatch.model.consent import AUTOTUNE, Consents, PodConsent, Progress, ProgressCounter
from gpuwatch.model.event import EventQuery
from gpuwatch.model.finding import Finding, Remedy, Severity
from gpuwatch.model.view import GpuRepair, RepairerStatus, Validation
from gpuwatch.model.xid import KernelCursor
from gpuwatch.remediation.model import RemediatorMemory
from gpuwatch.remediation.service.memory import SavedMemory, load_memory
from gpuwatch.repair.reset import RepairRecord, ResetUnderWay, record_file
from gpuwatch.rightsizing.service import checkpoint
from gpuwatch.rightsizing.usage.ledger import LedgerState
from gpuwatch.storage.store import Store
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.setting import Setting
from gpuwatch.tuning.service.state_dir import KnownCaps, StopRequest, TunerFolder, TunerMemory, TunerStopFile
from tests.model import views
from tests.rightsizing.service.test_checkpoint import KNOWN
from tests.storage.test_store import Wall

HERE = Path(__file__).parent
READ = "read.json"
GPU, BOOT, AT = views.uuid(0), "boot-1", 1_790_000_000.0


def opened(folder: Path) -> Store:
    """The store there, at a time that stands still: nothing is dropped for its age."""
    return Store.open(folder, Wall(AT))


def write(folder: Path) -> None:
    """One of all that is kept over a restart."""
    with closing(opened(folder)) as store:
        for events in (views.some_events(), views.a_fault_and_its_end()):
            for each in sorted((*events.xids, *events.sxids, *events.bus_losses), key=lambda event: event.at):
                store.add(each)
            for finding in events.findings:
                store.add(finding)
            for action in events.actions:
                store.record(action)
        lost = Finding(
            check="gpu_lost",
            severity=Severity.CRITICAL,
            message="GPU is lost",
            gpu=GPU,
            xid=79,
            since=AT,
            remedy=Remedy.REBOOT_NODE,
        )
        store.save_open((lost,))
        store.save_cursor(KernelCursor(boot_id=BOOT, mode="kmsg", position=4711))
        mark_repaired(store, (GPU, "node"), AT, (lost.key,))
        keep_validations(store, (Validation(gpu=GPU, at=AT, passed=True, boot_id=BOOT),), "operator")
        waiting = GpuRepair(gpu=GPU, state="waiting", message="a pod uses it")
        publish_repairer(store, RepairerStatus(at=AT, mode="observe", gpus=(waiting,)))
        SavedMemory(store).save(
            RemediatorMemory(
                node_uid="uid",
                boot_id=BOOT,
                acknowledged={lost.key: AT},
                quarantined={lost.key: (AT, AT + 60.0)},
                announced={"gpu-lost": AT},
                slot="gpuwatch-slot-0",
                sentinel="/var/run/reboot-required",
            )
        )
        store.flush()
    record = SettingsRecord(folder)
    power = Setting(
        uuid=GPU, knob="power_limit", original=700.0, applied=(500.0, 700.0), at=AT, boot_id=BOOT, driver="580.95.05"
    )
    record.add(power)
    record.add(
        msgspec.structs.replace(power, knob="locked_clocks", original=None, applied=(1_410_000_000.0,), pod_uid="p")
    )
    TunerStopFile(folder).put(StopRequest(by="ada", at=AT, why="benchmark"))
    TunerMemory(folder).write({"nlp/train": power})
    KnownCaps(TunerFolder.at(folder).caps).keep({"H100 | nlp CronJob train": 1_410_000_000.0})
    pod = PodConsent(namespace="nlp", name="train-0", uid="u", annotations={AUTOTUNE: "on"}, job="train", ip="10.0.0.7")
    ConsentsFile(folder).write(Consents(at=AT, namespaces={"nlp": {AUTOTUNE: "on"}}, pods=(pod,)))
    progress_file(folder).write(Progress(at=AT, owners={"u": ProgressCounter(samples=((AT, 12.0),))}))
    under_way = ResetUnderWay(gpu=GPU, index=0, at=AT, boot_id=BOOT, persistence=True)
    record_file(folder).write(RepairRecord(under_way=under_way, tries={GPU: (AT,)}))
    checkpoint.save(folder / checkpoint.NAME, KNOWN)


def read(folder: Path) -> dict[str, Any]:
    """All of it as JSON values, by where it is."""
    with closing(opened(folder)) as store:
        found = {
            "events": store.events(EventQuery()),
            "open": store.open_findings(),
            "cursor": store.cursor(BOOT),
            "repaired": repaired_at(store),
            "validations": validations(store),
            "repairer": repairer_status(store),
            "remediator": load_memory(store),
        }
    usage = checkpoint.peek(folder / checkpoint.NAME, LedgerState)
    found |= {
        "settings": SettingsRecord(folder).read(),
        "stop": TunerStopFile(folder).read(),
        "tuner": {owner: json.loads(body) for owner, body in TunerMemory(folder).read().items()},
        "caps": KnownCaps(TunerFolder.at(folder).caps).known,
        "consents": ConsentsFile(folder).read(),
        "progress": progress_file(folder).read(),
        "repairs": record_file(folder).read(),
        "usage": usage.state,
        "usage_trouble": usage.trouble,
    }
    return json.loads(msgspec.json.encode(found))


def private(source: Path, target: Path) -> Path:
    """A copy with the modes that the files had: Git keeps none."""
    shutil.copytree(source, target)
    for path in (target, *target.rglob("*")):
        os.chmod(path, 0o700 if path.is_dir() else 0o600)
    return target


def main() -> None:
    """Write the folder of this version."""
    folder = HERE / __version__
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as place:
        state = Path(place) / "state"
        write(state)
        found = read(state)
        shutil.copytree(state, folder, ignore=shutil.ignore_patterns("*.lock", "*-wal", "*-shm"))
    (folder / READ).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
