"""`gpuwatch tune`: what the tuner sets, plans, stops and restores. Only `driver_access` reaches the setters of NVML."""
