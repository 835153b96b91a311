"""What an agent learns about right-sizing from its Views: usage goes into a ledger, which is saved; advice comes out.

One thread at a time uses it. Time is that of the Views, so that recorded Views can be played faster.
"""

import logging
from pathlib import Path

from gpuwatch.config import RightsizingConfig
from gpuwatch.consents.file import ConsentsFile
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.view import View
from gpuwatch.rightsizing.findings.judge import recommend
from gpuwatch.rightsizing.model.recommendation import Recommendations
from gpuwatch.rightsizing.service import checkpoint as usage_checkpoint
from gpuwatch.rightsizing.service.cpu_throttling import Throttling
from gpuwatch.rightsizing.usage.from_views import fleet_of
from gpuwatch.rightsizing.usage.ledger import LedgerState, UsageLedger
from gpuwatch.rightsizing.usage.windows import SPAN, WindowCollector
from gpuwatch.workloads.workload_key import Tenants

log = logging.getLogger(__name__)

SAVE_SECONDS = 3600.0


class UsageLearner:
    """Of one node. `advice` is the newest, None before the first. `state_dir` None: nothing is saved."""

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
        for window in self._windows.take(view, self._throttled):
            self._ledger.add(window)
        if self._due is None:  # what an earlier agent has learned makes advice at once
            self._judged = self._saved = now
            self._due = self._ledger.at is not None
            self._read_sources(view)
        if self._due or not 0 <= now - self._judged < SPAN:
            self._due = False
            self._read_sources(view)
            self._judged = now
            fleet = fleet_of(view, self._ledger.namespaces(now))
            summaries, node = self._ledger.summaries(now), view.snapshot.node
            self.advice = recommend(summaries, fleet, self._config, now, since=self._ledger.since, node=node)
        if not 0 <= now - self._saved < SAVE_SECONDS:
            self._saved = now
            self.save()

    def end(self) -> None:
        """Save what is known by now, the minute that is not over included."""
        for window in self._windows.end():
            self._ledger.add(window)
        self.save()

    def save(self) -> None:
        """Write the checkpoint. A failed write is tried again an hour later."""
        if self._path is None or self._ledger.at is None:
            return
        try:
            usage_checkpoint.save(self._path, self._ledger.state())
        except GpuwatchError as error:
            self._log_change("checkpoint", f"{error}; what is known of right-sizing is lost if the agent ends")
        else:
            self._log_change("checkpoint", "")

    def _read_sources(self, view: View) -> None:
        """Read the owners of the pods, and how often CPU limits hold their containers back."""
        if self._throttling is not None:
            self._throttled = self._throttling(owner.pid for owner in view.owners)
        if self._consents is None:
            return
        try:
            consents = self._consents.read()
        except GpuwatchError as error:
            self._log_change("consents", f"{error}; the owners of pods are derived from their names")
        else:
            self._log_change("consents", "")
            if consents is not None:
                self._windows.tenants = Tenants(consents)

    def _log_change(self, what: str, trouble: str) -> None:
        """Log it, once for each change."""
        if trouble and trouble != self._troubles.get(what):
            log.warning("%s", trouble)
        self._troubles[what] = trouble


def _restored(path: Path | None, config: RightsizingConfig) -> UsageLedger:
    """The ledger of an earlier agent; an empty one where it cannot be used."""
    if path is None:
        return UsageLedger(config)
    found = usage_checkpoint.load(path, LedgerState, check=lambda state: UsageLedger.restored(state, config))
    for trouble in found.trouble:
        log.warning("%s", trouble)
    return UsageLedger(config) if found.state is None else UsageLedger.restored(found.state, config)
