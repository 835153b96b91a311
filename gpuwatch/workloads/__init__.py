"""Whose GPU is it: pod-resources of the kubelet, cgroups and /proc. Only `podresources` imports grpc."""
