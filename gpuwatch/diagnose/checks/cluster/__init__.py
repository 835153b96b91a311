"""What the cluster believes of this node: labels, taints, the GPU operator."""

from gpuwatch.diagnose.check import DiagnosticCheck
from gpuwatch.diagnose.checks.cluster.node import IN_HAND, OWN_MARKS, READY, TAINTED
from gpuwatch.diagnose.checks.cluster.operator import DEPLOYMENT, DISCOVERY, NFD, PODS, POLICY

CLUSTER: tuple[DiagnosticCheck, ...] = (DISCOVERY, NFD, DEPLOYMENT, TAINTED, POLICY, READY, IN_HAND, PODS, OWN_MARKS)
