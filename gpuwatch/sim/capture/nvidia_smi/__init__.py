"""Reads `nvidia-smi -q`, text or XML, as answers of a driver."""
