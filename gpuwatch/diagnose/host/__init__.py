"""Readers of the host for `diagnose`: packages, services, container runtime, device files."""
