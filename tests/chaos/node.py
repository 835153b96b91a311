"""gpuwatch as a node runs it, and what can be done to it: daemons as processes, fake driver, kernel log, kubelet, API.

Each daemon that ends is started again, as a kubelet would. A second node shares the budget of one node: its remediator
suffers, too, while its agent, on a driver of its own, is left alone, for comparison.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import psutil

from gpuwatch.host.machine import boot_id_file, first_line
from gpuwatch.model.workload import Allocatable
from gpuwatch.sim.surroundings.kubelet import SimKubelet
from tests.chaos.api_proxy import LATENCY, ApiProxy
from tests.chaos.plan import DAEMONS, GPUS, Action
from tests.cluster.api import NODES, Api
from tests.cluster.controlplane import ControlPlane
from tests.cluster.remediating import foreign, make_node
from tests.drills.fast_tuner import FAST
from tests.drills.test_restart import Ring
from tests.drills.test_tuner_dies import GUARD, environment
from tests.e2e.processes import ROOT
from tests.fakes.libnvml import FakeDriver, FakeProcess
from tests.ports import free_port
from tests.remediation.model.remediating import NAMESPACE

FATAL, APPLICATION, FLOOD = 119, 31, 150
NODE_NAMES = {"remediator-a": "chaos-a", "remediator-b": "chaos-b"}


class Daemon:
    """One process that is started again whenever it ends; a thread reads its log unless the plan forbids it."""

    def __init__(self, name: str, command: list[str], env: dict[str, str], log: Path) -> None:
        self.name, self.log, self.unread = name, log, threading.Event()
        self.deaths: list[tuple[int, bool]] = []  # exit code, and whether the plan killed it
        self.disturbed, self.paused = 0.0, False  # monotonic: when it last died, was stopped or went on
        self._command, self._env = command, env
        self.full, self._killed, self._over = False, False, False
        self._start()
        self._keeper = threading.Thread(target=self._keep, name=f"keep-{name}")
        self._keeper.start()

    def _start(self) -> None:
        self.process = subprocess.Popen(
            self._command, env=self._env, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        if self.full:
            self.fill(True)
        threading.Thread(target=self._read, args=(self.process,), name=f"log-{self.name}", daemon=True).start()

    def _read(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        with self.log.open("ab") as file, process.stderr as pipe:
            while True:
                while self.unread.is_set() and process.poll() is None:
                    time.sleep(0.05)
                if not (part := os.read(pipe.fileno(), 65536)):
                    return
                file.write(part)
                file.flush()

    def _keep(self) -> None:
        while not self._over:
            with suppress(subprocess.TimeoutExpired):
                code = self.process.wait(0.1)
                if self._over:
                    return
                self.disturbed, self.paused = time.monotonic(), False
                self.deaths.append((code, self._killed))
                self._killed = False
                time.sleep(0.5)
                self._start()

    def kill(self) -> None:
        """With SIGKILL."""
        self._killed, self.disturbed = True, time.monotonic()
        self.process.kill()

    def stop(self, on: bool) -> None:
        """SIGSTOP or SIGCONT."""
        self.disturbed, self.paused = time.monotonic(), on
        self.process.send_signal(signal.SIGSTOP if on else signal.SIGCONT)

    def fill(self, on: bool) -> None:
        """No file of this process may grow; reads, pipes and sockets go on."""
        self.full = on
        with suppress(psutil.Error, ProcessLookupError):
            limit = (0, resource.RLIM_INFINITY) if on else (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, limit)

    def usage(self) -> tuple[float, int, int]:
        """MiB, threads and descriptors of the process; those of an agent's reader count with it."""
        tree = [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]
        mib = sum(each.memory_full_info().uss for each in tree) / 2**20
        return mib, sum(each.num_threads() for each in tree), sum(each.num_fds() for each in tree)

    def end(self, seconds: float = 20.0) -> int:
        """SIGTERM; its exit code, -9 where it does not end in time."""
        self._over = True
        self._keeper.join()
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


class ChaosNode:
    """All of it; use as a context manager."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self.folder, self.api = folder, Api(plane)
        self.driver = FakeDriver(folder / "driver", gpus=GPUS)
        self.other = FakeDriver(folder / "other-driver", gpus=GPUS)
        self.ring = Ring(folder / "kmsg")
        self.kubelet = SimKubelet(folder / "kubelet" / "kubelet.sock")
        self.written: dict[int, tuple[int, int]] = {}  # sequence of each genuine XID line: GPU and code
        self.daemons: dict[str, Daemon] = {}
        self.proxy = ApiProxy(plane)
        self.port, self.quiet_port = free_port(), free_port()
        self.clock = folder / "clock"
        self._plane, self._running = plane, ExitStack()

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.clear()
        for daemon in self.daemons.values():
            daemon.end()
        self._running.close()

    def _start(self) -> None:
        self.show_devices(True)
        self._running.enter_context(self.kubelet)
        self._running.enter_context(self.proxy)
        self.clock.write_bytes(bytes(8))
        shim = self.folder / "clock.so"
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", str(shim), str(source)], check=True)
        env = {**environment(self.driver), "LD_PRELOAD": str(shim), "CHAOS_CLOCK": str(self.clock)}
        boot, machine = first_line(boot_id_file(Path("/proc"))), first_line(Path("/etc/machine-id"))
        self.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for name in NODE_NAMES.values():
            make_node(self.api, name, boot, machine or "")
        self.before = {name: foreign(self.node(name)) for name in NODE_NAMES.values()}
        self._work(env)
        for name in DAEMONS:
            self.daemons[name] = Daemon(name, self._command(name), env | self._env(name), self.folder / f"{name}.log")
        command = self._agent("quiet", self.other, self.quiet_port, str(self.folder / "no-kmsg"))
        env = environment(self.other) | {"NODE_NAME": NODE_NAMES["remediator-b"]}
        self.daemons["quiet agent"] = Daemon("quiet agent", command, env, self.folder / "quiet.log")

    def _work(self, env: dict[str, str]) -> None:
        for gpu in (0, 1):
            worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1e6)"], env=env)
            self._running.callback(worker.wait)
            self._running.callback(worker.kill)
            self.driver.set_processes(gpu, [FakeProcess(pid=worker.pid, memory=1 << 30)])
            self.driver.couple(gpu, clock_bound=0.2)

    def _env(self, name: str) -> dict[str, str]:
        return {"NODE_NAME": NODE_NAMES.get(name, NODE_NAMES["remediator-a"])}

    def _command(self, name: str) -> list[str]:
        if name == "agent":
            return self._agent("agent", self.driver, self.port, str(self.ring.path))
        state = self.folder / name
        if name == "guard":
            return [sys.executable, "-c", GUARD, str(self.folder / "tuner")]
        state.mkdir()
        if name == "tuner":
            return [sys.executable, "-m", "tests.drills.fast_tuner", str(self._write(name, {
                "agent": {"socket": str(self.folder / "agent.sock")},
                "sources": {"nvml_library": str(self.driver.library)},
                "state_dir": str(state),
                "tuning": {"mode": "enforce", "work_class": "batch", "listen": "127.0.0.1:0"},
            }))]  # fmt: skip
        config = self._write(name, {"remediation": {
            "mode": "enforce", "recovery_hold": 1.0, "min_quarantine": 0.0, "repeats": 1000,
            "max_quarantines_per_day": 1000, "budget": {"max_unavailable": 1, "namespace": NAMESPACE},
        }})  # fmt: skip
        command = [sys.executable, "-m", "gpuwatch", "--config", str(config), "remediator", "--state-dir", str(state)]
        agent = "agent" if name == "remediator-a" else "quiet"
        command += ["--agent", str(self.folder / f"{agent}.sock"), "--listen", f"127.0.0.1:{free_port()}"]
        return [*command, "--kubeconfig", str(self.proxy.kubeconfig(self.folder))]

    def _agent(self, name: str, driver: FakeDriver, port: int, kmsg: str) -> list[str]:
        missing = str(self.folder / "missing")
        kubelet = str(self.kubelet.path) if name == "agent" else f"{missing}/kubelet.sock"
        config = self._write(f"{name}-config", {
            "agent": {"interval": 1 / FAST, "api": "open"},
            "checks": {"xid_clear_after": 1},
            "sources": {"kmsg": kmsg, "sys": missing, "pod_logs": f"{missing}/pods", "pod_resources": kubelet},
        })  # fmt: skip
        command = [sys.executable, "-m", "gpuwatch", "--config", str(config), "--nvml-library", str(driver.library)]
        command += ["agent", "--listen", f"127.0.0.1:{port}", "--socket", str(self.folder / f"{name}.sock")]
        return [*command, "--state-dir", str(self.folder / f"{name}-state")]

    def _write(self, name: str, config: dict[str, object]) -> Path:
        file = self.folder / f"{name}.yaml"
        file.write_text(json.dumps(config))
        return file

    def node(self, name: str) -> dict[str, object]:
        """A Node of ours, asked of the API server itself."""
        body: dict[str, object] = self.api.request("GET", f"{NODES}/{name}").body
        return body

    def show_devices(self, there: bool) -> None:
        """What the kubelet may give away: all GPUs, or none while the device plugin is away."""
        uuids = tuple(self.driver.get(gpu, "uuid") for gpu in range(GPUS)) if there else ()
        self.kubelet.show((), (Allocatable(resource="nvidia.com/gpu", device_ids=uuids),))

    def xid(self, gpu: int, code: int) -> None:
        """As a driver: the event, then the line."""
        self.driver.xid(gpu, code)
        self.written[self.ring.xid(self.driver, gpu, code)] = gpu, code

    def begin(self, action: Action) -> None:
        """Do what the plan says."""
        daemon, target = self.daemons.get(action.target), action.target
        match action.kind:
            case "kill" if daemon:
                daemon.kill()
            case "forged line":
                bus = self.driver.get(int(target), "pci_bus")
                self.ring.numbers += 1
                line = f"NVRM: Xid (PCI:0000:{bus:02x}:00): 79, GPU has fallen off the bus."
                with self.ring.path.open("a") as file:  # facility 1 is user space
                    file.write(f"12,{self.ring.numbers},{int(time.monotonic() * 1e6)},-;{line}\n {line}\n")
            case "application XID":
                self.xid(int(target), APPLICATION)
            case "fatal XID":
                self.xid(int(target), FATAL)
                self.other.xid(int(target), FATAL)
            case "XID flood":
                for _ in range(FLOOD):
                    self.xid(int(target), APPLICATION)
            case _:
                self._turn(action, True)

    def end(self, action: Action) -> None:
        """The time of an action with a length is over."""
        self._turn(action, False)

    def _turn(self, action: Action, on: bool) -> None:
        daemon, target = self.daemons.get(action.target), action.target
        match action.kind:
            case "stop" if daemon:
                daemon.stop(on)
            case "full disk" if daemon:
                daemon.fill(on)
            case "unread log" if daemon:
                daemon.unread.set() if on else daemon.unread.clear()
            case "clock":
                with self.clock.open("r+b") as file:  # never truncated: the daemons have it mapped
                    file.write((int(target) if on else 0).to_bytes(8, sys.byteorder, signed=True))
            case "api error":
                self.proxy.error = target if on else None
            case "api latency":
                self.proxy.latency = LATENCY if on else 0.0
            case "kubelet":
                self.kubelet.fail(target if on else None)  # type: ignore[arg-type]
            case "plugin":
                self.show_devices(not on)
            case "driver hang":
                self.driver.hang(gpu=int(target)) if on else self.driver.clear("*", int(target))
            case "slow driver":
                self.driver.delay(0.2 if on else 0.0, gpu=int(target))
