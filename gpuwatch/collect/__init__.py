"""Telemetry of the driver and the kernel. It imports the model, the configuration and the host; it judges nothing."""
