"""`gpuwatch diagnose`: its options, its screen, its documents. The checks are in `gpuwatch.diagnose`."""
