"""What the main thread of a role does: wait for SIGTERM or SIGINT, and meanwhile take over a changed configuration."""

import logging
import signal
import threading
from collections.abc import Callable, Sequence

from gpuwatch.config import Config
from gpuwatch.process.config_watch import WATCH_SECONDS, ConfigWatch
from gpuwatch.process.signals import ENDS, Signals

log = logging.getLogger(__name__)


class MainThread:
    """`section` of the configuration is the role's, and `fixed` names what of it a running process cannot change;
    `take_over` is given a configuration that was found good. `stopping` is set by the signals, or by whoever stops.
    """

    def __init__(
        self,
        watch: ConfigWatch | None,
        section: str,
        fixed: Sequence[str],
        take_over: Callable[[Config], None],
        *,
        pause: float = WATCH_SECONDS,
    ) -> None:
        self._watch, self._section, self._fixed, self._take_over = watch, section, fixed, take_over
        self._pause = pause
        self._signals = Signals()
        self.stopping = threading.Event()

    def heed_signals(self) -> None:
        """SIGTERM and SIGINT end `wait`; SIGHUP has the configuration read anew."""
        self._signals.heed()

    def wait(self) -> None:
        """Until `stopping` is set."""
        while not self.stopping.is_set():
            number = self._signals.next(self._pause)
            if number in ENDS:
                self.stopping.set()
            else:
                self._follow_configuration(asked=number == signal.SIGHUP)

    @property
    def config_error(self) -> str | None:
        """Why the configuration in the file is not the one in use."""
        return self._watch.error if self._watch else None

    def _follow_configuration(self, *, asked: bool) -> None:
        """Take over a changed file; one that makes no sense, or asks for what cannot be done, changes nothing."""
        if self._watch is None or not (self._watch.changed() or asked):
            return
        before = getattr(self._watch.config, self._section)
        if (new := self._watch.reload()) is None:
            return
        for name in self._fixed:
            if getattr(getattr(new, self._section), name) != getattr(before, name):
                changed = f"{self._section}.{name}"
                log.warning("a change of `%s` takes effect when the %s is restarted", changed, self._watch.role)
        self._take_over(new)
