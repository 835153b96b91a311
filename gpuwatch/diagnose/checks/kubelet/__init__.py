"""What the kubelet has of the GPUs: the device plugin, the devices it counts, which pod holds which."""
