"""Reads the usage of the past from a Prometheus server."""
