"""A machine of its own on this one: its network, mounts, processes and cgroups are apart, and end with it."""

import contextlib
import os
import shutil
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tests.waiting import BOUND_SECONDS, until

SCRIPT = Path(__file__).with_name("machine.sh")
GROUPS = Path("/sys/fs/cgroup")
PREFIX = "gpuwatch-test-node-"
ENTER = 'for f in /sys/fs/cgroup/*/cgroup.procs; do echo $$ > "$f"; done; exec "$@"'
"""nsenter changes namespaces, not cgroups."""


def name_of(number: int) -> str:
    """The host's, and of the Node."""
    return f"gpu-node-{number}"


def address_of(number: int) -> str:
    """In the network of all machines."""
    return f"10.99.0.{number}"


def lacks() -> str:
    """Why there can be no such machine here; empty: there can."""
    if os.geteuid() != 0:
        return "it needs root"
    for program in ("unshare", "nsenter", "ip"):
        if shutil.which(program) is None:
            return f"it needs {program}"
    if not (GROUPS / "memory/cgroup.procs").exists():
        return "it needs cgroups of version 1 (cpu, memory, ... below /sys/fs/cgroup)"
    probe = ["unshare", "--mount", "--net", "--pid", "--cgroup", "--fork", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"it needs namespaces: {done.stderr.strip()}" if done.returncode else ""


class Machine:
    """Runs as a context manager; `folder` must be on a disk, as overlays are kept there. Number 1 has an API server."""

    def __init__(self, folder: Path, number: int = 1) -> None:
        self.folder, self.logs, self.number = folder, folder / "log", number
        self.name, self.address = name_of(number), address_of(number)
        self._group = f"{PREFIX}{os.getpid()}-{number}"
        self._outer: subprocess.Popen[Any] | None = None
        self._pid = 0
        self._running: dict[str, subprocess.Popen[Any]] = {}

    def __enter__(self) -> Self:
        sweep()
        self.logs.mkdir(parents=True)
        command = [str(SCRIPT), str(self.folder), self._group, str(self.number)]
        with (self.logs / "machine.log").open("wb") as log:
            self._outer = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            until(lambda: self._is_up(), "the machine is up")
            self._pid = psutil.Process(self._outer.pid).children()[0].pid
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """All its processes die with the first one."""
        if self._outer is not None:
            self._outer.kill()
            self._outer.wait(BOUND_SECONDS)
            for process in self._running.values():
                process.wait(BOUND_SECONDS)
        sweep(self._group)

    def connect(self, other: "Machine") -> None:
        """One network of both: a cable between their bridges, and the way to the pods of each."""
        ends = {self: f"node-{other.number}", other: f"node-{self.number}"}
        link = ["ip", "link", "add", ends[self], "netns", str(self._pid), "type", "veth"]
        subprocess.run([*link, "peer", "name", ends[other], "netns", str(other._pid)], check=True)
        for machine, end in ends.items():
            far = other if machine is self else self
            machine.run("ip", "link", "set", end, "master", "gw0", "up")
            machine.run("ip", "route", "add", f"10.98.{far.number}.0/24", "via", far.address)

    def command(self, *arguments: str | Path) -> list[str]:
        """A command line of this machine that runs in that one."""
        enter = ["nsenter", "--target", str(self._pid), "--mount", "--net", "--pid", "--cgroup", "--ipc", "--uts"]
        return [*enter, "sh", "-c", ENTER, "sh", *map(str, arguments)]

    def run(self, *arguments: str | Path, stdin: str | None = None, check: bool = True) -> str:
        """What it prints. AssertionError, with its errors, when it fails."""
        done = subprocess.run(self.command(*arguments), input=stdin, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def start(self, name: str, *arguments: str | Path, **variables: str) -> None:
        """A process of that machine; its output goes to a file called `name`."""
        with (self.logs / f"{name}.log").open("ab") as log:
            env = {**os.environ, **variables}
            self._running[name] = subprocess.Popen(
                self.command(*arguments), stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=env
            )

    def stop(self, name: str) -> None:
        """SIGTERM, and SIGKILL in the end."""
        process = self._running.pop(name)
        for child in psutil.Process(process.pid).children():
            child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
            return
        process.kill()
        process.wait(BOUND_SECONDS)

    def lives(self, name: str) -> bool:
        """Whether it has not ended."""
        return self._running[name].poll() is None

    def log(self, name: str, lines: int = 30) -> str:
        """The end of what it said."""
        return "\n".join((self.logs / f"{name}.log").read_text(errors="replace").splitlines()[-lines:])

    def _is_up(self) -> bool:
        said = (self.logs / "machine.log").read_text()
        assert self._outer is not None
        assert self._outer.poll() is None, f"no machine: {said}"
        return said.endswith("up\n")


def sweep(*groups: str) -> None:
    """Remove cgroups of machines that are no more; by default those whose process has died."""
    if not groups:
        found = {path.name for path in GROUPS.glob(f"*/{PREFIX}*")}
        groups = tuple(
            name for name in found if not psutil.pid_exists(int(name.removeprefix(PREFIX).partition("-")[0]))
        )
    for group in groups:
        for top in GROUPS.glob(f"*/{group}"):
            folders = [Path(folder) for folder, _, _ in os.walk(top, topdown=False)]
            for folder in folders:
                with contextlib.suppress(OSError):  # a process is not quite dead yet
                    until(lambda folder=folder: _removed(folder), seconds=20, step=0.05)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
