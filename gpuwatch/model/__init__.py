"""Records that cross processes: frozen, without I/O. This package imports nothing else of gpuwatch."""
