"""`gpuwatch metrics`: one exposition, and the list of all metrics."""
