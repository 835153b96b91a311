"""Readers of what `diagnose` asks of a host: packages, services, container runtime, device files. They import the model
and the host.
"""
