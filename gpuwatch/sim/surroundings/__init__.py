"""What stands around a simulated GPU: kubelet, /proc, PCI, kernel text."""
