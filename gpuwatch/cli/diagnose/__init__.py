"""`gpuwatch diagnose`: its options, its screen, its bundle. The checks are in `gpuwatch.diagnose`."""
