"""The surroundings of a simulated GPU: kubelet, /proc, PCI, kernel text."""
