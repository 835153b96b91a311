"""How far into the kernel log everything has been told, so that another life of the agent can go on from there."""

from collections.abc import Sequence
from typing import Literal

from gpuwatch.collect.kernel_log.framing import Frame
from gpuwatch.model.xid import KernelCursor

Mode = Literal["kmsg", "klogctl"]


class Progress:
    """What was read of one boot's log. Records of /dev/kmsg have numbers; klogctl's only have their time since boot."""

    def __init__(self, mode: Mode, boot_id: str | None) -> None:
        self._mode, self._boot_id = mode, boot_id
        self._position: int | None = None
        self._nameless = False

    def note(self, frames: Sequence[Frame]) -> None:
        """These were read."""
        for frame in frames:
            place = self._place(frame)
            if place is None:
                self._nameless = True
            elif self._mode == "kmsg":
                self._position = place
            else:  # processors' clocks differ by microseconds
                self._position = max(place, self._position or 0)

    @property
    def cursor(self) -> KernelCursor | None:
        """Behind the last record; None where nobody could find that place again."""
        if self._boot_id is None or self._nameless:
            return None
        return KernelCursor(boot_id=self._boot_id, mode=self._mode, position=self._position)

    def told(self, frames: Sequence[Frame], after: KernelCursor | None) -> int | None:
        """How many of these first frames the cursor is behind; None when it is no cursor of this log."""
        now = self.cursor
        if after is None or now is None or (after.boot_id, after.mode) != (now.boot_id, now.mode):
            return None
        if after.position is None:
            return 0
        if now.position is not None and now.position < after.position:  # numbers that start again are another log's
            return None
        places = [self._place(frame) or 0 for frame in frames]
        return max((number for number, place in enumerate(places, 1) if place <= after.position), default=0)

    def gap(self, frames: Sequence[Frame], after: KernelCursor) -> int:
        """Records between the cursor and the first frame: overwritten before anybody read them."""
        if self._mode != "kmsg" or after.position is None or not frames:
            return 0
        return max(0, (self._place(frames[0]) or 0) - after.position - 1)

    def _place(self, frame: Frame) -> int | None:
        """What only grows within a boot."""
        if self._mode == "kmsg":
            return frame.sequence
        return None if frame.uptime is None else round(frame.uptime * 1e6)
