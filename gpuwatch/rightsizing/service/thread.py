"""The agent's thread for right-sizing. No other thread waits for it: it takes the newest View when it is ready.

An error in it is logged once, and does not affect the exporter. Its rules are loaded some seconds after
the first View, so that they do not slow the agent's start.
"""

import logging
import threading
import time
from pathlib import Path

from gpuwatch.config import RightsizingConfig
from gpuwatch.model.view import View
from gpuwatch.rightsizing.model.recommendation import Recommendations
from gpuwatch.rightsizing.service.cpu_throttling import Throttling

log = logging.getLogger(__name__)

OFF = "right-sizing is switched off; set rightsizing.enabled to true"
LATER_SECONDS = 3.0
"""After the first View."""

LEARNING = "it began to watch a moment ago; ask again in two minutes"


class Rightsizer:
    """Makes advice from Views. Only one thread calls `start`, `configure` and `stop`; any may call the others."""

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
        """Start the thread, unless right-sizing is switched off."""
        if self._config.enabled:
            self._thread = _Thread(self._config, self._state_dir, self._throttling, self._later, self._ending)
            self._thread.start()

    def submit(self, view: View) -> None:
        """Pass it a View; returns at once."""
        if (thread := self._thread) is not None:
            thread.submit(view)

    def configure(self, config: RightsizingConfig) -> None:
        """Use other settings; switching it off saves what it has learned."""
        self._config = config
        if self._thread is None:
            self.start()
        elif config.enabled:
            self._thread.config = config
        else:
            self._thread.stop()
            self._ending, self._thread = self._thread, None

    def stop(self) -> None:
        """Let it save what it has learned and end; returns at once."""
        if self._thread is not None:
            self._thread.stop()

    def wait(self, until: float) -> None:
        """Wait for its end until monotonic `until`; if it has not ended then, the last checkpoint stays as it is."""
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
    """`config` may be replaced at any time. `before`: the thread whose checkpoint it continues. `trouble`: why the last
    View could not be used; empty: it was.
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

    def submit(self, view: View) -> None:
        self._view = view
        self._news.set()

    def stop(self) -> None:
        self._stopping.set()
        self._news.set()

    def run(self) -> None:
        self._news.wait()
        if self._stopping.wait(self._later):
            return
        if self._before is not None:  # else two would write one file
            self._before.join()
            self._before = None
        try:
            from gpuwatch.rightsizing.service.learner import UsageLearner

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
                    except Exception as error:  # one odd View must not end the thread
                        trouble = f"{type(error).__name__}: {error}"
                        if trouble != self.trouble:
                            log.exception("right-sizing could not use a View; the agent continues")
                        self.trouble = trouble
                    else:
                        self.advice, self.trouble = watch.advice, ""
            watch.end()
        except Exception:  # the exporter continues without it
            log.exception("right-sizing has ended; the agent continues without it")
            self.advice, self.trouble = None, "right-sizing failed; the agent's log says how"
