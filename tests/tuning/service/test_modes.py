"""Whatever the umask, no other user may read or write what agent, remediator and tuner keep."""

import os
import stat
from pathlib import Path

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.model.consent import Consents
from gpuwatch.remediation.service.status import RemediatorStatusFile, RunningRemediator
from gpuwatch.storage.store import Store
from gpuwatch.tuning.model.status import TunerState
from gpuwatch.tuning.service.state_dir import StopRequest, TunerFolder
from tests.tuning.service.tuning import limit


def test_every_file_and_folder_of_the_state_is_closed_to_others(tmp_path: Path) -> None:
    place = tmp_path / "state"
    before = os.umask(0)
    try:
        store = Store.open(place)
        store.remember("name", b"{}")
        store.flush()
        ConsentsFile(place).write(Consents(at=1.0))
        RemediatorStatusFile(str(place)).write(RunningRemediator(node="n1", mode="observe", at=1.0))
        files = TunerFolder.at(place)
        files.record.add(limit("GPU-0"))
        files.heartbeat.beat("enforce", 1.0)
        files.guard.beat("guard", 1.0)
        files.stop.put(StopRequest())
        files.status.write(TunerState(mode="observe", at=1.0))
        files.memory.write({})
        with files.record.lock(0), files.record.lock_tuner(0), files.record.lock_gpu("GPU-0", 0):
            modes = {
                str(path.relative_to(tmp_path)): stat.S_IMODE(path.lstat().st_mode)
                for path in (place, *place.rglob("*"))
            }
        store.close()
    finally:
        os.umask(before)
    assert len(modes) >= 17, modes
    allowed = {name: 0o750 if (tmp_path / name).is_dir() else 0o640 for name in modes}
    assert {name: oct(mode) for name, mode in modes.items() if mode & ~allowed[name]} == {}
