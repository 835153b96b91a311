"""Is the suite steady? Runs `make test`'s tests again and again, alone and beside other load, and prints a table.

    python -m tests.steady --idle 5 --loaded 3

Each loaded run has four busy loops beside it; runs differ in their conditions too: a random order, another working
directory, an agent and a Prometheus on their default ports and sockets, a user without rights, a machine with a running
kubelet. What cannot be had is said in the row.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.gobuild import cache
from tests.image.base import CannotBuild
from tests.node.cluster import NodeCluster
from tests.node.machine import lacks

ROOT = Path(__file__).resolve().parents[1]
LOOPS = 4
USER = 65534
CLOSING = re.compile(r"^=+ (.*(?:passed|failed|error).*) in ([\d.]+)s.* =+$", re.MULTILINE)


class Conditions(NamedTuple):
    """How one run differs from the plain one."""

    load: int = 0
    order: int | None = None
    elsewhere: bool = False
    beside: bool = False
    user: bool = False
    kubelet: bool = False

    def __str__(self) -> str:
        names = {
            f"beside {self.load} busy loops": self.load,
            f"random order {self.order}": self.order is not None,
            "from another working directory": self.elsewhere,
            "with an agent and a Prometheus on their default addresses": self.beside,
            f"as user {USER}": self.user,
            "on a machine with a running kubelet": self.kubelet,
        }
        return ", ".join(name for name, holds in names.items() if holds) or "idle"


def runs(idle: int, loaded: int) -> list[Conditions]:
    """The first and the last idle run are plain, so that their times compare; each other has a condition of its own."""
    different = [Conditions(), Conditions(order=1, user=True), Conditions(elsewhere=True, kubelet=True)]
    different += [Conditions(beside=True), Conditions()]
    alone = [different[number % len(different)] for number in range(idle)]
    heavy = [Conditions(order=2), Conditions(elsewhere=True, beside=True), Conditions(order=3)]
    return alone + [heavy[number % len(heavy)]._replace(load=LOOPS) for number in range(loaded)]


def run(conditions: Conditions, workers: int, log: Path) -> tuple[int, str, float]:
    """Exit code, pytest's own closing words, and seconds of one run."""
    with ExitStack() as around:
        prefix, root = [], ROOT
        try:
            if conditions.user:
                prefix, root = around.enter_context(user())
            if conditions.kubelet:
                prefix = around.enter_context(node())
        except CannotBuild as error:
            return 0, f"not run: {error}", 0.0
        command = [*prefix, sys.executable, "-m", "pytest", "--rootdir", str(root), "-c", str(root / "pyproject.toml")]
        command += ["--numprocesses", str(workers), "--dist", "worksteal", "-m", "not gpu and not bench and not slow"]
        if conditions.order is not None:
            command += ["--random-order", f"--random-order-seed={conditions.order}"]
        for _ in range(conditions.load):
            around.enter_context(process([sys.executable, "-c", "while True: pass"]))
        if conditions.beside:
            for each in default_services():
                around.enter_context(process(each))
        started = time.monotonic()
        with log.open("w") as output:
            where = tempfile.gettempdir() if conditions.elsewhere else root
            code = subprocess.run([*command, str(root / "tests")], cwd=where, stdout=output, stderr=output, check=False)
        closing = CLOSING.findall(log.read_text())
        return code.returncode, closing[-1][0] if closing else "no closing line", time.monotonic() - started


@contextmanager
def user() -> Iterator[tuple[list[str], Path]]:
    """What starts a command as a user without rights, and that user's own clone, with a copy of the built tools.

    CannotBuild: this process may not become another user, or that user may not run this interpreter. The interpreter
    has to start itself: `setpriv` starts it with root's rights to folders such as /root, in which it may lie.
    """
    become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    itself = "import subprocess, sys; subprocess.run([sys.executable, '-c', ''], check=True)"
    tried = subprocess.run([*become, sys.executable, "-c", itself], capture_output=True, text=True, check=False)
    if tried.returncode:
        why = tried.stderr.strip().rpartition("\n")[2]
        raise CannotBuild(f"no user can run {sys.executable} ({why}); make .venv with PYTHON=/usr/bin/python3")
    home = Path(tempfile.mkdtemp(prefix="gpuwatch-user-"))
    try:
        root = home / "gpuwatch"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(root)], check=True)
        (root / ".venv").symlink_to(ROOT / ".venv")
        if cache().exists():
            shutil.copytree(cache(), home / ".cache/gpuwatch", symlinks=True, ignore=shutil.ignore_patterns("*.lock"))
        subprocess.run(["chown", "--recursive", "--no-dereference", f"{USER}:{USER}", str(home)], check=True)
        variables = [f"HOME={home}", f"PYTHONPATH={root}"]
        yield ["env", "--unset=XDG_CACHE_HOME", "--unset=XDG_RUNTIME_DIR", *variables, *become], root
    finally:
        shutil.rmtree(home, ignore_errors=True)


@contextmanager
def node() -> Iterator[list[str]]:
    """What starts a command on a machine where a kubelet runs. CannotBuild: there can be none here."""
    if reason := lacks():
        raise CannotBuild(reason)
    folder = Path(tempfile.mkdtemp(prefix="gpuwatch-node-", dir="/var/tmp"))
    try:
        with NodeCluster(folder) as cluster:
            yield cluster.command()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def default_services() -> Iterator[list[str]]:
    """Commands of what may run on a node where somebody runs the tests, on the addresses that they have there."""
    yield [sys.executable, "-m", "gpuwatch", "--source", "sim", "agent"]
    if prometheus := shutil.which("prometheus"):
        folder = tempfile.mkdtemp()
        (Path(folder) / "prometheus.yml").write_text("scrape_configs: []\n")
        yield [prometheus, f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]


@contextmanager
def process(command: list[str]) -> Iterator[None]:
    """Run it for as long as the block runs."""
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        started.kill()
        started.wait()


def main() -> None:
    """Print a row after each run; exit with 1 when one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--idle", type=int, default=5)
    parser.add_argument("--loaded", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2 * (os.cpu_count() or 1) + 1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what runs beside ends with it
    folder = Path(tempfile.mkdtemp(prefix="gpuwatch-steady-"))
    print(f"logs in {folder}\n\n| run | conditions | outcome | seconds |\n|---|---|---|---|", flush=True)
    failed = 0
    for number, conditions in enumerate(runs(options.idle, options.loaded), 1):
        code, outcome, seconds = run(conditions, options.workers, folder / f"{number}.log")
        failed += code != 0
        print(f"| {number} | {conditions} | {outcome} | {seconds:.0f} |", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
