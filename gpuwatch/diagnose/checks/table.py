"""The table of all checks, in the order in which a node comes up: what is above must work before what is below."""

from gpuwatch.diagnose.check import DiagnosticCheck
from gpuwatch.diagnose.checks.baseline import BASELINE
from gpuwatch.diagnose.checks.cluster import CLUSTER
from gpuwatch.diagnose.checks.devices import DEVICES
from gpuwatch.diagnose.checks.driver import DRIVER
from gpuwatch.diagnose.checks.exporters import EXPORTERS
from gpuwatch.diagnose.checks.fabric import FABRIC
from gpuwatch.diagnose.checks.functional import FUNCTIONAL
from gpuwatch.diagnose.checks.health import HEALTH
from gpuwatch.diagnose.checks.host import HOST
from gpuwatch.diagnose.checks.kubelet import KUBELET
from gpuwatch.diagnose.checks.nvml import NVML
from gpuwatch.diagnose.checks.power import POWER
from gpuwatch.diagnose.checks.runtime import RUNTIME
from gpuwatch.diagnose.checks.sharing import SHARING

CHECKS: tuple[DiagnosticCheck, ...] = (
    *HOST,
    *DRIVER,
    *NVML,
    *DEVICES,
    *HEALTH,
    *FABRIC,
    *RUNTIME,
    *KUBELET,
    *SHARING,
    *EXPORTERS,
    *CLUSTER,
    *POWER,
    *FUNCTIONAL,
    *BASELINE,
)
