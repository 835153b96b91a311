"""The remediator's own pod under the taint that it puts on its Node: would it live on, and could it come back?"""

import logging
from collections.abc import Callable

from gpuwatch.kube.errors import KubeError
from gpuwatch.kube.objects import TAINT
from gpuwatch.kube.reader import NodeReader
from gpuwatch.model.errors import UsageError

log = logging.getLogger(__name__)

CANNOT_RETURN = (
    f"gpuwatch's own pod does not tolerate the taint {TAINT}, so once it ends on a tainted Node it cannot come back to "
    "give the Node back; let it tolerate every taint (operator: Exists)"
)


class OwnPod:
    """`pod` is (namespace, name), None outside of pods; `effect` that of the taint."""

    def __init__(self, pod: tuple[str, str] | None, effect: str) -> None:
        self._pod, self._effect = pod, effect
        self._safe = self._looked = False
        self.remarks: tuple[str, ...] = ()

    def check(self, reader: Callable[[], NodeReader]) -> None:
        """Refuse what would end this very pod: our own taint with NoExecute, if the pod does not tolerate it.

        Raises:
            UsageError: it does not.
            KubeError: that cannot be found out now.
        """
        pod = self._pod
        if self._effect != "NoExecute" or pod is None or self._safe:
            return
        if not reader().tolerates(*pod):
            raise UsageError(
                "remediation.effect is NoExecute",
                f"that would evict this very pod, {'/'.join(pod)}, and nobody could take the taint away again",
                "let it tolerate every taint (operator: Exists), or set NoSchedule",
            )
        self._safe = True

    def look(self, reader: NodeReader) -> None:
        """See once whether it could come back; what cannot be seen is not complained of."""
        if self._looked or self._pod is None:
            return
        self._looked = True
        try:
            comes_back = reader.tolerates(*self._pod, effect="NoSchedule")
        except KubeError as error:
            log.info("cannot see whether this pod tolerates the taint %s; %s", TAINT, error)
            return
        if not comes_back:
            self.remarks = (CANNOT_RETURN,)
            log.warning("%s", CANNOT_RETURN)
