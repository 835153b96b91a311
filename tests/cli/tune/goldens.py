"""Screens kept as files, so that every change of a screen is a diff to look at: `python -m tests.cli.tune.goldens`."""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import msgspec

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.model.view import Events, View
from gpuwatch.rightsizing.model.recommendation import Recommendations
from gpuwatch.tuning.model.status import TunerState
from gpuwatch.tuning.service.state_dir import TunerStatus
from tests.cli.commands import advised, ask, run
from tests.cli.recommend import advice
from tests.cli.tune import tuner_states
from tests.diagnose.hosts import Host
from tests.model import views

FOLDER = Path(__file__).parents[2] / "golden" / "cli"


NVLINK_LINE = (
    "[171167.620236] NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 "
    "(0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
)


class Screen(NamedTuple):
    """One file: what is asked of which node, in a terminal of `width` columns."""

    name: str
    view: Callable[[], View]
    args: tuple[str, ...]
    width: int = 100
    events: Callable[[], Events] | None = None

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.txt"

    def draw(self) -> str:
        """What the command prints; ages in `events` and `xids` are told against the View's time."""
        events = self.events() if self.events else None
        return ask(self.view(), *self.args, events=events, env={"COLUMNS": str(self.width)}).stdout


class TunerScreen(NamedTuple):
    """One file of `tune`: what is told where a tuner has just said `state`; None: there is no tuner."""

    name: str
    view: Callable[[], View]
    state: Callable[[], TunerState] | None
    args: tuple[str, ...]
    width: int = 80

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.txt"

    def draw(self) -> str:
        """What the command prints."""
        with TemporaryDirectory() as place:
            if self.state is not None:
                TunerStatus(Path(place)).write(msgspec.structs.replace(self.state(), at=time.time()))
            where = ("--state-dir", place)
            return ask(self.view(), "tune", *self.args, *where, env={"COLUMNS": str(self.width)}).stdout


class PlanScreen(NamedTuple):
    """One file of `tune plan`, where pods have said what `tuner_states.consents` has. `tuning`: the configuration."""

    name: str
    view: Callable[[], View]
    tuning: str
    args: tuple[str, ...] = ("plan",)
    width: int = 80

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.txt"

    def draw(self) -> str:
        """What the command prints."""
        with TemporaryDirectory() as place:
            config = Path(place) / "gpuwatch.yaml"
            config.write_text(self.tuning)
            ConsentsFile(Path(place)).write(tuner_states.consents())
            message = ("--config", str(config), "tune", *self.args, "--state-dir", place)
            return ask(self.view(), *message, env={"COLUMNS": str(self.width)}).stdout


class AdviceScreen(NamedTuple):
    """One file of `recommend`: what is told of an agent's advice."""

    name: str
    advice: Callable[[], Recommendations]
    args: tuple[str, ...] = ("recommend",)
    width: int = 80

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.txt"

    def draw(self) -> str:
        """What the command prints."""
        return advised(self.advice(), *self.args, env={"COLUMNS": str(self.width)}).stdout


class HostScreen(NamedTuple):
    """One file of `diagnose`: what it says of a recorded host to which something was done."""

    name: str
    breaks: Callable[[Host], None]
    args: tuple[str, ...]
    width: int = 100

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.txt"

    def draw(self) -> str:
        """What the command prints of the folder `host`."""
        with TemporaryDirectory() as place, contextlib.chdir(place):
            host = Host(Path("host").absolute())
            self.breaks(host)
            if host.view is not None:
                snapshot = msgspec.structs.replace(host.view.snapshot, at=views.AT)
                view = msgspec.structs.replace(host.view, snapshot=snapshot)
                (host.root / "gpuwatch/view.json").write_bytes(msgspec.json.encode(view))
            return run(*self.args, "--root", "host", env={"COLUMNS": str(self.width)}).stdout


def well(host: Host) -> None:
    """Nothing is wrong."""


def updated(host: Host) -> None:
    """The kernel was updated, and the driver's module was not built for it; somebody's containers still start."""
    host.edit("proc/sys/kernel/osrelease", "6.8.0", "6.11.0")
    host.remove("proc/driver/nvidia/version")
    host.remove("sys/module/nvidia/version")
    kept = [line for line in (host.root / "proc/modules").read_text().splitlines() if "nvidia" not in line]
    host.write("proc/modules", "\n".join(kept) + "\n")
    host.view = None


def neglected(host: Host) -> None:
    """Several things of different stages are wrong."""
    host.remove("etc/containerd/config.toml")
    host.gpu(3, ecc={"pending": False})


DIAGNOSES = (
    HostScreen("diagnose-well", well, ("diagnose",)),
    HostScreen("diagnose-well-80", well, ("diagnose",), 80),
    HostScreen("diagnose-updated", updated, ("diagnose",)),
    HostScreen("diagnose-updated-80", updated, ("diagnose",), 80),
    HostScreen("diagnose-neglected-80", neglected, ("diagnose",), 80),
    HostScreen("diagnose-wide", neglected, ("diagnose", "--stage", "runtime", "-o", "wide")),
    HostScreen("diagnose-json", neglected, ("diagnose", "--stage", "runtime", "--stage", "kubelet", "-o", "json")),
)

BUDGET = "tuning: {node_budget_watts: 1500}"

TUNINGS = (
    TunerScreen("tune-status-80", views.healthy, tuner_states.enforcing, ("status",)),
    TunerScreen("tune-status-120", views.healthy, tuner_states.enforcing, ("status",), 120),
    TunerScreen("tune-status-alone-80", views.failing, None, ("status",)),
    TunerScreen("tune-status-alone-120", views.failing, None, ("status",), 120),
    TunerScreen("tune-status-trouble-80", views.healthy, tuner_states.troubled, ("status",)),
    TunerScreen("tune-status-trouble-120", views.healthy, tuner_states.troubled, ("status",), 120),
    PlanScreen("tune-plan-80", tuner_states.tunable, BUDGET),
    PlanScreen("tune-plan-120", tuner_states.tunable, BUDGET, width=120),
    PlanScreen("tune-plan-slow-80", lambda: tuner_states.tunable(interval=5.0), "{}"),
    PlanScreen("tune-plan-json", tuner_states.tunable, BUDGET, ("plan", "-o", "json")),
    TunerScreen("tune-status-wide", views.healthy, tuner_states.enforcing, ("status", "-o", "wide")),
)

ADVICES = (
    AdviceScreen("recommend-80", advice.everything),
    AdviceScreen("recommend-112", advice.everything, width=112),
    AdviceScreen("recommend-unpriced-80", advice.unpriced),
    AdviceScreen("recommend-nothing-80", advice.nothing),
    AdviceScreen("recommend-wide", advice.everything, ("recommend", "-o", "wide")),
    AdviceScreen("recommend-apply", advice.everything, ("recommend", "--top", "4", "-o", "apply")),
)

SCREENS = (
    Screen("status-healthy", views.healthy, ("status",)),
    Screen("status-healthy-80", views.healthy, ("status",), 80),
    Screen("status-failing", views.failing, ("status",)),
    Screen("status-failing-80", views.failing, ("status",), 80),
    Screen("status-mig", views.mig, ("status",)),
    Screen("status-bare", views.bare, ("status",)),
    Screen("status-empty", views.empty, ("status",)),
    Screen("status-wide", views.failing, ("status", "-o", "wide")),
    Screen("status-json", views.degraded, ("status", "-o", "json")),
    Screen("gpus", views.failing, ("get", "gpus")),
    Screen("processes", views.bare, ("get", "processes")),
    Screen("processes-80", views.healthy, ("get", "processes"), 80),
    Screen("pods", views.healthy, ("get", "pods")),
    Screen("pods-wide", views.mig, ("get", "pods", "-o", "wide")),
    Screen("mig", views.mig, ("get", "mig")),
    Screen("nvlinks", views.healthy, ("get", "nvlinks")),
    Screen("findings", views.failing, ("get", "findings")),
    Screen("findings-wide", views.failing, ("get", "findings", "-o", "wide")),
    Screen("xids", views.failing, ("get", "xids")),
    Screen("xids-json", views.failing, ("get", "xids", "-o", "json")),
    Screen("pods-yaml", views.healthy, ("get", "pods", "-o", "yaml")),
    Screen("describe", views.failing, ("describe", "gpu", "1")),
    Screen("describe-lost", views.failing, ("describe", "gpu", "2")),
    Screen("describe-mig", views.mig, ("describe", "gpu", "0")),
    Screen("describe-history", views.failing, ("describe", "gpu", "2"), 100, views.a_fault_and_its_end),
    Screen("events", views.failing, ("events",), 100, views.some_events),
    Screen("events-fault", views.failing, ("events",), 100, views.a_fault_and_its_end),
    Screen("events-fault-wide", views.failing, ("events", "-o", "wide"), 160, views.a_fault_and_its_end),
    Screen("events-fault-80", views.failing, ("events",), 80, views.a_fault_and_its_end),
    Screen("events-fault-60", views.failing, ("events",), 60, views.a_fault_and_its_end),
    Screen("events-json", views.failing, ("events", "-o", "json"), 100, views.some_events),
    Screen("top-once", views.failing, ("top", "--once")),
    Screen("top-tree", views.healthy, ("top", "--tree", "--once")),
    Screen("nagios", views.failing, ("status", "--nagios")),
    Screen("xid-79", views.healthy, ("xid", "explain", "79")),
    Screen("xid-31", views.healthy, ("xid", "explain", "31")),
    Screen("xid-154", views.healthy, ("xid", "explain", "154")),
    Screen("xid-149-line", views.healthy, ("xid", "explain", NVLINK_LINE)),
    Screen("xid-list-80", views.healthy, ("xid", "list", "--taint"), 80),
    *DIAGNOSES,
    *TUNINGS,
    *ADVICES,
)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for screen in SCREENS:
        screen.path.write_text(screen.draw())
