"""The table of all checks, in the order in which a node comes up: what is above must work before what is below."""

from gpuwatch.diagnose.check import Check
from gpuwatch.diagnose.checks_baseline import BASELINE
from gpuwatch.diagnose.checks_cluster import CLUSTER
from gpuwatch.diagnose.checks_devices import DEVICES
from gpuwatch.diagnose.checks_driver import DRIVER
from gpuwatch.diagnose.checks_exporters import EXPORTERS
from gpuwatch.diagnose.checks_fabric import FABRIC
from gpuwatch.diagnose.checks_functional import FUNCTIONAL
from gpuwatch.diagnose.checks_health import HEALTH
from gpuwatch.diagnose.checks_host import HOST
from gpuwatch.diagnose.checks_kubelet import KUBELET
from gpuwatch.diagnose.checks_nvml import NVML
from gpuwatch.diagnose.checks_power import POWER
from gpuwatch.diagnose.checks_runtime import RUNTIME
from gpuwatch.diagnose.checks_sharing import SHARING

CHECKS: tuple[Check, ...] = (
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
