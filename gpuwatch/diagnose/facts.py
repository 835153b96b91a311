"""Everything that a diagnosis reads about a node, gathered once. What could not be read is None, with the reason."""

from typing import Literal, get_args

from gpuwatch.diagnose.active.results import Active
from gpuwatch.diagnose.host.cdi import CdiSpec
from gpuwatch.diagnose.host.container_runtime import ContainerRuntime
from gpuwatch.diagnose.host.driver_files import DeviceNodes, DriverRoot
from gpuwatch.diagnose.host.exporters import Exporter
from gpuwatch.diagnose.host.kernel_modules import Kernel
from gpuwatch.diagnose.host.kernel_text import KernelMessage
from gpuwatch.diagnose.host.kubelet_files import KubeletFiles
from gpuwatch.diagnose.host.services import OperatorFiles, Services
from gpuwatch.diagnose.model import ClusterFacts
from gpuwatch.host.machine import ProcessLimits
from gpuwatch.host.pci import BusGpu
from gpuwatch.model.snapshot import Record
from gpuwatch.model.view import View
from gpuwatch.tuning.actuation.heartbeat import Heartbeat
from gpuwatch.tuning.model.setting import Actuation

HostSection = Literal[
    "bus", "kernel", "kernel_log", "nodes", "driver_roots", "limits", "operator", "services", "runtime", "cdi",
    "kubelet", "record", "tuner",
]  # fmt: skip
"""Read from files of the host, in a process of their own: some of those files are the driver's."""

Section = Literal[HostSection, "view", "earlier", "cluster", "exporters", "active"]

ViewFailure = Literal["hangs", "absent"]
"""Why there is no View. hangs: it did not arrive in time, and only a driver that does not answer causes that; absent:
there is none, as in a recorded tree without one. A View that states why NVML does not start is neither.
"""

HOST_SECTIONS: tuple[HostSection, ...] = get_args(HostSection)


class HostFacts(Record, frozen=True, kw_only=True):
    """What the host's files show."""

    bus: tuple[BusGpu, ...] | None = None
    kernel: Kernel | None = None
    kernel_log: tuple[KernelMessage, ...] | None = None
    nodes: DeviceNodes | None = None
    driver_roots: tuple[DriverRoot, ...] | None = None
    limits: ProcessLimits | None = None
    operator: OperatorFiles | None = None
    services: Services | None = None
    runtime: ContainerRuntime | None = None
    cdi: tuple[CdiSpec, ...] | None = None
    kubelet: KubeletFiles | None = None
    record: Actuation | None = None
    tuner: Heartbeat | None = None


class NodeFacts(HostFacts, frozen=True, kw_only=True):
    """The node at unix time `at`; `live` and `plain` as in `Places`. `earlier`: a View from before `view`, in a
    full diagnosis; `agent`: the View is that of a running agent.
    """

    at: float
    node: str | None = None
    root: str = "/"
    live: bool = True
    plain: bool = False
    agent: bool = False
    view: View | None = None
    view_failure: ViewFailure | None = None
    earlier: View | None = None
    cluster: ClusterFacts | None = None
    exporters: tuple[Exporter, ...] | None = None
    active: Active | None = None
    unread: dict[str, str] = {}
    """Section -> why it could not be read."""

    @property
    def node_labels(self) -> dict[str, str]:
        """Labels of the Node; empty where it was not read."""
        return self.cluster.node.labels if self.cluster else {}

    denied: tuple[str, ...] = ()
    """Sections of `unread` for which only a permission is missing."""
