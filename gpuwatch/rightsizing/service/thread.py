"""The agent's thread for right-sizing. Nobody waits for it: it looks at the newest View when it gets to it.

Whatever goes wrong in it is said once, and is no concern of the exporter. Its rules are loaded some
seconds after the first View is out, so that they cost the agent's start nothing.
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
