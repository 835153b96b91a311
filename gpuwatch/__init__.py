"""gpuwatch: one node agent that exports, judges and tunes NVIDIA GPUs. Importing it costs nothing."""

__version__ = "0.1.0"
