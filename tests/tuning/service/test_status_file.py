"""What a tuner tells other processes comes back as it was said, and what is not that is nothing."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.event import Result
from gpuwatch.tuning.model.setting import Trigger
from gpuwatch.tuning.service.state_dir import TunerStatus
from tests.tuning.service.test_metrics import BUSY

SAID = replace(BUSY, at=7.5, actions={("power_limit", Result.DONE): 3, ("locked_clocks", Result.FAILED): 1})


def test_what_was_reported_last_is_read_back(tmp_path: Path):
    status = TunerStatus(tmp_path)
    assert status.read() is None
    status.write(replace(SAID, at=1.0))
    status.write(SAID)
    found = status.read()
    assert found == SAID
    assert found.actuation.restores == {Trigger.GUARD: 3}
    assert [path.name for path in status.path.parent.iterdir()] == [status.path.name]


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"{}", b"[]", b'{"schema": 2, "content": {"state": {"mode": "observe"}}}']
)
def test_what_nobody_of_this_version_wrote_is_nothing(tmp_path: Path, body: bytes):
    status = TunerStatus(tmp_path)
    status.path.parent.mkdir()
    status.path.write_bytes(body)
    assert status.read() is None


def test_where_it_cannot_be_written_is_reported(tmp_path: Path):
    with pytest.raises(GpuwatchError, match=r"cannot write .*tuner-state\.json"):
        TunerStatus(tmp_path / "missing").write(SAID)
