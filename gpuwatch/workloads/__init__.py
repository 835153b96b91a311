"""Whose GPU is it: pod-resources of the kubelet, cgroups and /proc. `podresources` speaks gRPC itself."""
