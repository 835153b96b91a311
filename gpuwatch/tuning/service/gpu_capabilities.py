"""What may be set on each GPU: the driver is asked once for each, and again when another driver was loaded."""

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import GpuState
from gpuwatch.model.view import View
from gpuwatch.tuning.actuation.interface import Actuator
from gpuwatch.tuning.model.setting import GpuCapabilities

AGAIN_SECONDS = 60.0
"""Seconds until a driver that gave no answer is asked again."""


class CapabilityCache:
    """Of one node. Without an actuator no GPU is asked, and nothing is known."""

    def __init__(self, actuator: Actuator | None) -> None:
        self._actuator, self._driver = actuator, ""
        self._known: dict[str, GpuCapabilities] = {}
        self._silent: dict[str, tuple[float, str]] = {}
        self._doubted: set[str] = set()

    def known(self, view: View | None, now: float, troubles: list[str | None]) -> Mapping[str, GpuCapabilities]:
        """By uuid, of the GPUs that answer. One that does not takes a second, and the others wait a cycle."""
        if self._actuator is None or view is None:
            return {}
        driver = view.snapshot.driver.version if view.snapshot.driver else None
        if driver is not None and driver != self._driver:
            self._driver = driver
            self._known.clear()
            self._silent.clear()
        self._silent = {uuid: each for uuid, each in self._silent.items() if each[0] > now}
        for status in view.snapshot.statuses:
            uuid = status.identity.uuid
            unknown = (uuid not in self._known or uuid in self._doubted) and uuid not in self._silent
            if unknown and status.state is GpuState.FRESH and not self._ask(self._actuator, uuid, now):
                break
        troubles += dict.fromkeys(message for _, message in self._silent.values())
        return dict(self._known)

    def doubt(self, uuids: Iterable[str]) -> None:
        """Something was not set on these: ask again what may be."""
        self._doubted.update(uuids)

    def _ask(self, actuator: Actuator, uuid: str, now: float) -> bool:
        before = self._known.pop(uuid, None)
        self._doubted.discard(uuid)
        try:
            capabilities = actuator.capabilities(uuid)
        except GpuwatchError as error:
            self._silent[uuid] = now + AGAIN_SECONDS, str(error)
            return False
        # a limit of ours may be in force by now; the earlier one counts
        self._known[uuid] = capabilities if before is None else replace(capabilities, limit=before.limit)
        return True
