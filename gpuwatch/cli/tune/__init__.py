"""`gpuwatch tune`: what the tuner sets, plans, stops and restores. Only `driver_access` reaches setters of the driver."""
