"""The users of each GPU, from the kubelet's pod-resources, cgroups and /proc. `grpc_call` implements gRPC."""
