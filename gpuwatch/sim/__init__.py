"""A node without a GPU: physics, driver, kubelet and kernel log, run under the real readers."""
