"""The table of all checks, in the order in which a node comes up: what is above must work before what is below."""

from gpuwatch.diagnose.check import DiagnosticCheck
from gpuwatch.diagnose.checks.baseline import BASELINE
from gpuwatch.diagnose.checks.cluster_node import NODE
from gpuwatch.diagnose.checks.container_devices import CDI
from gpuwatch.diagnose.checks.devices import DEVICES
from gpuwatch.diagnose.checks.driver_fit import FIT
from gpuwatch.diagnose.checks.driver_state import STATE
from gpuwatch.diagnose.checks.exporters import EXPORTERS
from gpuwatch.diagnose.checks.functional import FUNCTIONAL
from gpuwatch.diagnose.checks.gpu_operator import OPERATOR
from gpuwatch.diagnose.checks.health.board import BOARD
from gpuwatch.diagnose.checks.health.memory import MEMORY
from gpuwatch.diagnose.checks.health.modes import MODES
from gpuwatch.diagnose.checks.health.xids import XIDS
from gpuwatch.diagnose.checks.kernel import KERNEL
from gpuwatch.diagnose.checks.kubelet.devices import KUBELET_DEVICES
from gpuwatch.diagnose.checks.kubelet.plugin import PLUGIN
from gpuwatch.diagnose.checks.links import LINKS
from gpuwatch.diagnose.checks.nvml import NVML
from gpuwatch.diagnose.checks.nvml_access import ACCESS
from gpuwatch.diagnose.checks.nvswitch import NVSWITCH
from gpuwatch.diagnose.checks.pci_bus import PCI_BUS
from gpuwatch.diagnose.checks.power import POWER
from gpuwatch.diagnose.checks.runtime import RUNTIME
from gpuwatch.diagnose.checks.sharing import SHARING
from gpuwatch.diagnose.model import CheckStage

_HARDWARE = (
    *PCI_BUS,
    *KERNEL,
    *STATE,
    *FIT,
    *NVML,
    *ACCESS,
    *DEVICES,
    *MEMORY,
    *XIDS,
    *BOARD,
    *MODES,
    *NVSWITCH,
    *LINKS,
)
_CONTAINERS = (*RUNTIME, *CDI, *PLUGIN, *KUBELET_DEVICES, *SHARING, *EXPORTERS, *NODE, *OPERATOR)

CHECKS: tuple[DiagnosticCheck, ...] = tuple(
    sorted(
        (*_HARDWARE, *_CONTAINERS, *POWER, *FUNCTIONAL, *BASELINE),
        key=lambda check: (list(CheckStage).index(check.stage), check.id),
    )
)
