"""The metrics that Prometheus reads: families, exposition, profiles. Imports the model and the configuration."""
