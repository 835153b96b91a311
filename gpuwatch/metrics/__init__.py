"""What Prometheus reads: families, exposition, profiles. It imports the model and the configuration."""
