"""What the cluster believes of this node: labels, taints, the GPU operator."""

from gpuwatch.diagnose.check import Check

CLUSTER: tuple[Check, ...] = ()
