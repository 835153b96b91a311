"""What a forged or stale record can make the real command do at the C library: nothing, or a lower limit."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.host.machine import boot_id_file, first_line
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.model.setting import Knob, Setting
from tests.fakes.libnvml import FakeDriver

BOOT = first_line(boot_id_file(Path("/proc"))) or ""


class Node:
    """A GPU of the C library, whose administrator has set a limit of 500 W, and a tuner's state folder."""

    def __init__(self, folder: Path, driver: FakeDriver) -> None:
        self.state, self.driver = folder / "state", driver
        self.state.mkdir(mode=0o750)
        self.record = SettingsRecord(self.state)
        driver.set(0, power_limit_mw=500_000)

    def setting(self, knob: Knob, original: float | None, *applied: float) -> Setting:
        uuid, version = self.ask("GPUWATCH_ASK")
        return Setting(
            uuid=uuid, knob=knob, original=original, applied=applied, at=time.time(), boot_id=BOOT, driver=version
        )

    def ask(self, _: str) -> tuple[str, str]:
        code = (
            "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(0);"
            "print(n.nvmlDeviceGetUUID(h), n.nvmlSystemGetDriverVersion())"
        )
        found = subprocess.run(
            [sys.executable, "-c", code], env=os.environ | self.driver.env, capture_output=True, text=True, check=True
        )
        uuid, version = found.stdout.split()
        return uuid, version

    def restore(self) -> "subprocess.CompletedProcess[str]":
        """`gpuwatch tune restore --all`, as the guard's container runs it at its end."""
        command = ["--nvml-library", str(self.driver.library), "tune", "restore", "--all"]
        return subprocess.run(
            [sys.executable, "-m", "gpuwatch", *command, "--state-dir", str(self.state)],
            env=os.environ | self.driver.env,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def watts(self) -> float:
        return self.driver.get(0, "power_limit_mw") / 1e3


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with FakeDriver(tmp_path, gpus=1) as driver:
        yield Node(tmp_path, driver)


def forge(node: Node, setting: Setting) -> None:
    """A line that says that the 500 W are gpuwatch's, with a seal of the forger's, in the place of the record."""
    import msgspec

    node.record.path.parent.mkdir(mode=0o700, exist_ok=True)
    content = {"actuation": {"settings": [msgspec.to_builtins(setting)]}, "seal": "0" * 64}
    node.record.path.write_text(json.dumps({"schema": 1, "content": content}))
    node.record.path.chmod(0o600)


def test_a_line_that_gpuwatch_did_not_write_raises_no_limit(node: Node) -> None:
    genuine = node.setting("power_limit", 400.0, 300.0)
    node.record.add(genuine)  # there is a key, of another setting
    forge(node, node.setting("power_limit", 700.0, 500.0))
    found = node.restore()
    assert (node.watts, found.returncode) == (500.0, 1), found
    assert "its seal is wrong" in found.stderr


def test_a_record_of_another_user_is_not_acted_on(node: Node) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    node.record.add(node.setting("power_limit", 700.0, 500.0))
    os.chown(node.record.path, 65534, 65534)
    found = node.restore()
    assert (node.watts, found.returncode) == (500.0, 1), found
    assert "it belongs to user 65534" in found.stderr


@pytest.mark.parametrize(("recorded", "default", "restored"), [(700.0, 700, 700), (700.0, 600, 600), (550.0, 700, 550)])
def test_a_genuine_line_restores_up_to_the_default_and_to_what_was_read(
    node: Node, recorded: float, default: int, restored: float
) -> None:
    node.driver.set(0, power_limit_default_mw=default * 1000)
    node.record.add(node.setting("power_limit", recorded, 500.0))
    found = node.restore()
    assert (node.watts, found.returncode) == (restored, 0), found


def test_a_limit_above_the_default_is_not_lowered_by_a_restore(node: Node) -> None:
    node.driver.set(0, power_limit_default_mw=450_000)
    node.record.add(node.setting("power_limit", 700.0, 500.0))
    node.restore()
    assert node.watts == 500.0


@pytest.mark.parametrize(("administrators", "stays"), [(1500, True), (None, False)])
def test_a_clock_above_our_cap_shows_a_lock_of_others_which_stays(
    node: Node, administrators: int | None, stays: bool
) -> None:
    node.driver.couple(0)
    node.driver.set(0, power_limit_mw=700_000, locked_min_mhz=210, locked_max_mhz=administrators or 1200)
    node.record.add(node.setting("locked_clocks", None, 1.2e9))
    found = node.restore()
    assert found.returncode == 0, found
    assert node.driver.get(0, "locked_max_mhz") == (administrators if stays else None)
    assert node.record.read().settings == ()
