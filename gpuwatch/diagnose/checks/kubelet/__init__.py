"""The GPUs as the kubelet has them: the device plugin, the devices it counts, the pods that hold them."""
