"""How the kubelet gets GPUs: the device plugin, its sockets, what it advertises and who holds it."""

from gpuwatch.diagnose.check import Check

KUBELET: tuple[Check, ...] = ()
