"""Whether each GPU is healthy: memory, heat and clocks, modes, XIDs."""
