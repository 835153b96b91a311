"""The skeleton of every long-running process: signals, periodic work, reload of the configuration."""
