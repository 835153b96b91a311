"""What joins GPUs to each other and to the network: NVLink, NVSwitch, RDMA."""

from gpuwatch.diagnose.check import Check

FABRIC: tuple[Check, ...] = ()
