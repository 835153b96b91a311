"""Shares the watts of a node between its GPUs. No I/O."""
