"""The agent's thread for right-sizing. Nobody waits for it: it looks at the newest View when it gets to it.

Whatever goes wrong in it is said once, and is no concern of the exporter. Its rules are loaded some
seconds after the first View is out, so that they cost the agent's start nothing.
"""

import logging
import threading
import time
from pathlib import Path

from gpuwatch.config import RightsizingConfig
from gpuwatch.consents.file import ConsentsFile
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.view import View
from gpuwatch.rightsizing.findings.judge import recommend
from gpuwatch.rightsizing.model.recommendation import Recommendations
from gpuwatch.rightsizing.model.usage import UsageWindow
from gpuwatch.rightsizing.service import checkpoint as usage_checkpoint
from gpuwatch.rightsizing.service.cpu_throttling import Throttling
from gpuwatch.rightsizing.usage.from_views import fleet_of
from gpuwatch.rightsizing.usage.ledger import LedgerState, UsageLedger
from gpuwatch.rightsizing.usage.windows import SPAN, WindowCollector
from gpuwatch.workloads.workload_key import Tenants

log = logging.getLogger(__name__)

SAVE_SECONDS = 3600.0


class UsageLearner:
    """Of one node. `advice` is the newest, None before the first. `state_dir` None: nothing is kept."""

    def __init__(self, config: RightsizingConfig, state_dir: Path | None, throttling: Throttling | None = None) -> None:
        self._config, self._throttling = config, throttling
        self._consents = ConsentsFile(state_dir) if state_dir else None
        self._path = state_dir / usage_checkpoint.NAME if state_dir else None
        self._windows = WindowCollector()
        self._ledger = _restored(self._path, config)
        self._throttled: dict[int, float] = {}
        self._judged = self._saved = 0.0
        self._due: bool | None = None
        self._troubles: dict[str, str] = {}
        self.advice: Recommendations | None = None

    def configure(self, config: RightsizingConfig) -> None:
        """Judge by other settings from now on."""
        self._config = config
        self._ledger.configure(config)
        self._due = self._due is not None

    def take(self, view: View) -> None:
        """One more View; once a minute advice is made of what is known by then, once an hour that is saved."""
        now = view.snapshot.at
        self._add(self._windows.take(view, self._throttled))
        if self._due is None:  # what an earlier agent has learned is told at once
            self._judged = self._saved = now
            self._due = self._ledger.at is not None
            self._look_around(view)
        if self._due or not 0 <= now - self._judged < SPAN:
            self._due = False
            self._look_around(view)
            self._judge(view)
        if not 0 <= now - self._saved < SAVE_SECONDS:
            self._saved = now
            self.save()

    def end(self) -> None:
        """Save what is known by now, the minute that is not over included."""
        self._add(self._windows.end())
        self.save()

    def save(self) -> None:
        """Write the checkpoint. What cannot be written is tried again an hour later."""
        if self._path is None or self._ledger.at is None:
            return
        try:
            usage_checkpoint.save(self._path, self._ledger.state())
        except GpuwatchError as error:
            self._say("checkpoint", f"{error}; what is known of right-sizing is lost if the agent ends")
        else:
            self._say("checkpoint", "")

    def _add(self, windows: tuple[UsageWindow, ...]) -> None:
        for window in windows:
            self._ledger.add(window)

    def _judge(self, view: View) -> None:
        now = self._judged = view.snapshot.at
        fleet = fleet_of(view, self._ledger.namespaces(now))
        summaries, node = self._ledger.summaries(now), view.snapshot.node
        self.advice = recommend(summaries, fleet, self._config, now, since=self._ledger.since, node=node)

    def _look_around(self, view: View) -> None:
        """Whose the pods are, and whether their CPU limits hold them back."""
        if self._throttling is not None:
            self._throttled = self._throttling(owner.pid for owner in view.owners)
        if self._consents is None:
            return
        try:
            consents = self._consents.read()
        except GpuwatchError as error:
            self._say("consents", f"{error}; the owners of pods are told from their names")
        else:
            self._say("consents", "")
            if consents is not None:
                self._windows.tenants = Tenants(consents)

    def _say(self, what: str, trouble: str) -> None:
        """Once for each change."""
        if trouble and trouble != self._troubles.get(what):
            log.warning("%s", trouble)
        self._troubles[what] = trouble


def _restored(path: Path | None, config: RightsizingConfig) -> UsageLedger:
    """Go on where an earlier agent ended."""
    if path is None:
        return UsageLedger(config)
    found = usage_checkpoint.load(path, LedgerState)
    for trouble in found.trouble:
        log.warning("%s", trouble)
    if found.state is None:
        return UsageLedger(config)
    try:
        ledger = UsageLedger.restored(found.state, config)
        if ledger.at is not None:
            list(ledger.summaries(ledger.at))
    except (ArithmeticError, *usage_checkpoint.BROKEN) as error:  # else it would be of no use at each start again
        log.warning("%s says what cannot be; %s: %s; history is collected anew", path, type(error).__name__, error)
        return UsageLedger(config)
    return ledger


log = logging.getLogger(__name__)

OFF = "right-sizing is switched off; set rightsizing.enabled to true"
LATER_SECONDS = 3.0
"""After the first View."""

LEARNING = "it has just begun to watch; ask again in two minutes"


class Rightsizer:
    """Makes advice of the Views it is told. `start`, `configure` and `stop` belong to one thread; any may ask."""

    def __init__(
        self,
        config: RightsizingConfig,
        state_dir: Path | None,
        throttling: Throttling | None = None,
        *,
        later: float = LATER_SECONDS,
    ) -> None:
        self._config, self._state_dir, self._throttling, self._later = config, state_dir, throttling, later
        self._thread: _Thread | None = None
        self._ending: _Thread | None = None

    def start(self) -> None:
        """Begin, unless it is switched off."""
        if self._config.enabled:
            self._thread = _Thread(self._config, self._state_dir, self._throttling, self._later, self._ending)
            self._thread.start()

    def tell(self, view: View) -> None:
        """Give it a View; returns at once."""
        if (thread := self._thread) is not None:
            thread.tell(view)

    def configure(self, config: RightsizingConfig) -> None:
        """Go by other settings; switching it off saves what it knows."""
        self._config = config
        if self._thread is None:
            self.start()
        elif config.enabled:
            self._thread.config = config
        else:
            self._thread.stop()
            self._ending, self._thread = self._thread, None

    def stop(self) -> None:
        """Let it save what it knows and end; returns at once."""
        if self._thread is not None:
            self._thread.stop()

    def wait(self, until: float) -> None:
        """For its end, no longer than monotonic `until`; then the last checkpoint stays as it is."""
        for thread in (self._ending, self._thread):
            if thread is not None and thread.is_alive():
                thread.join(max(0.0, until - time.monotonic()))

    def recommendations(self) -> Recommendations | str:
        """The newest advice, or in words why there is none."""
        thread = self._thread
        if thread is None:
            return OFF
        return thread.advice or thread.trouble or LEARNING


class _Thread(threading.Thread):
    """`config` may be exchanged at any time. `before`: whose checkpoint it goes on with. `trouble`: why the last View
    was of no use; empty: it was.
    """

    def __init__(
        self,
        config: RightsizingConfig,
        state_dir: Path | None,
        throttling: Throttling | None,
        later: float,
        before: threading.Thread | None,
    ) -> None:
        super().__init__(name="rightsizing", daemon=True)
        self.config, self._state_dir, self._throttling, self._later = config, state_dir, throttling, later
        self._before = before
        self._view: View | None = None
        self._news = threading.Event()
        self._stopping = threading.Event()
        self.advice: Recommendations | None = None
        self.trouble = ""

    def tell(self, view: View) -> None:
        self._view = view
        self._news.set()

    def stop(self) -> None:
        self._stopping.set()
        self._news.set()

    def run(self) -> None:
        self._news.wait()
        if self._stopping.wait(self._later):
            return
        if self._before is not None:  # two would write one file
            self._before.join()
            self._before = None
        try:
            from gpuwatch.rightsizing.service.thread import UsageLearner

            config = self.config
            watch = UsageLearner(config, self._state_dir, self._throttling)
            while not self._stopping.is_set():
                self._news.wait()
                self._news.clear()
                if self.config is not config:
                    config = self.config
                    watch.configure(config)
                if (view := self._view) is not None and not self._stopping.is_set():
                    try:
                        watch.take(view)
                    except Exception as error:  # one odd View must not be the last one
                        trouble = f"{type(error).__name__}: {error}"
                        if trouble != self.trouble:
                            log.exception("right-sizing could not use a View; the agent goes on")
                        self.trouble = trouble
                    else:
                        self.advice, self.trouble = watch.advice, ""
            watch.end()
        except Exception:  # the exporter goes on without it
            log.exception("right-sizing has ended; the agent goes on without it")
            self.advice, self.trouble = None, "right-sizing failed; the agent's log says how"
