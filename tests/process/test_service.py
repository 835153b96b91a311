"""What waits for the end of a role takes over a changed file meanwhile, and only one that is good."""

import contextlib
import http.client
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.config import Config
from gpuwatch.http.server import Response
from gpuwatch.model.errors import UsageError
from gpuwatch.process.service import RoleService
from gpuwatch.process.signals import ConfigWatch
from tests.waiting import BOUND_SECONDS

BEFORE = Config()
QUIET = replace(BEFORE, tuning=replace(BEFORE.tuning, mode="off"))
MOVED = replace(BEFORE, tuning=replace(BEFORE.tuning, mode="off", listen=":1"))


class Idle(RoleService):
    """A role that does nothing."""

    role, section, fixed = "tuner", "tuning", ("listen", "web_config")

    def work(self) -> None:
        pass

    def reconfigure(self, new: Config) -> None:
        self.taken.append(new)

    def finish(self) -> None:
        pass

    def __init__(self, watch: ConfigWatch, listen: str = "") -> None:
        super().__init__({"/metrics": lambda _: Response()}, listen, watch=watch, pause=0.01)
        self.taken: list[Config] = []


class Bench:
    """A role over a file that changes as soon as it waits; each reading of it gives the next of `readings`."""

    def __init__(self, file: Path, *readings: Config | UsageError) -> None:
        self._file, self._readings = file, list(readings)
        file.write_text("")
        self.main = Idle(ConfigWatch(BEFORE, file, self._read, live=("tuning",), role="tuner"))

    @property
    def taken(self) -> list[Config]:
        return self.main.taken

    def run(self) -> None:
        self.main.run(self._touch)

    def _touch(self) -> None:
        new = self._file.with_suffix(".new")
        new.write_text(str(len(self._readings)))
        new.replace(self._file)

    def _read(self) -> Config:
        found = self._readings.pop(0)
        if self._readings:
            self._touch()
        else:
            self.main.stopping.set()
        if isinstance(found, UsageError):
            raise found
        return found


def test_a_changed_file_is_taken_over(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "file", QUIET)
    bench.run()
    assert [new.tuning.mode for new in bench.taken] == ["off"]
    assert bench.main.config_error is None


def test_one_that_is_refused_changes_nothing_until_it_is_mended(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "file", UsageError("no such mode"))
    bench.run()
    assert bench.taken == []
    assert "no such mode" in (bench.main.config_error or "")
    mended = Bench(tmp_path / "file", UsageError("no such mode"), QUIET)
    mended.run()
    assert len(mended.taken) == 1
    assert mended.main.config_error is None


def test_what_cannot_change_while_it_runs_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Bench(tmp_path / "file", MOVED).run()
    assert caplog.messages == ["a change of `tuning.listen` takes effect when the tuner is restarted"]


def test_over_loopback_a_role_answers_to_names_of_its_machine_only(tmp_path: Path) -> None:
    config = replace(BEFORE, agent=replace(BEFORE.agent, hosts=("gpu-7.example",)))
    role = Idle(ConfigWatch(config, None, lambda: config), "127.0.0.1:0")
    role.start()
    try:
        answers = []
        for host in ("localhost", "gpu-7.example", "evil.example"):
            client = http.client.HTTPConnection("127.0.0.1", role.port or 0, timeout=BOUND_SECONDS)
            client.request("GET", "/metrics", headers={"Host": host})
            answers.append(client.getresponse().status)
            client.close()
    finally:
        role.stop()
    assert answers == [200, 200, 421]


WAITS = """
from gpuwatch.process.service import RoleService

class Idle(RoleService):
    role = section = "tuning"
    def work(self): pass
    def reconfigure(self, new): pass
    def finish(self): pass

Idle({}).run(started=lambda: print("waits", flush=True))
print("ends", flush=True)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_a_hangup_does_not(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", WAITS], stdout=subprocess.PIPE, text=True) as process, ended(process):
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        os.kill(process.pid, signal.SIGHUP)
        os.kill(process.pid, number)
        assert process.stdout.readline() == "ends\n"
        assert process.wait(BOUND_SECONDS) == 0


@contextlib.contextmanager
def ended(process: subprocess.Popen[str]) -> Iterator[None]:
    """Also when the test fails."""
    try:
        yield
    finally:
        process.kill()


class Stumbling(Idle):
    """A role that fails on the first configurations that it takes over."""

    stumbles = 2

    def reconfigure(self, new: Config) -> None:
        super().reconfigure(new)
        if len(self.taken) <= self.stumbles:
            raise RuntimeError("half of it is in force")


def test_a_configuration_that_was_not_taken_over_stays_an_error_and_is_tried_again(tmp_path: Path) -> None:
    watch = ConfigWatch(BEFORE, tmp_path / "file", lambda: QUIET, live=("tuning",), role="tuner")
    role = Stumbling(watch)
    for tries in (1, 2):
        role._reload(watch)
        assert len(role.taken) == tries
        assert "RuntimeError" in (watch.error or "")
        assert watch.status()
    role._reload(watch)
    assert (role.taken, watch.error) == ([QUIET] * 3, None)
    role._reload(watch)
    assert len(role.taken) == 3
