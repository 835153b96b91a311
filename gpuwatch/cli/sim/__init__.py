"""`gpuwatch sim`: simulated nodes and fleets."""
