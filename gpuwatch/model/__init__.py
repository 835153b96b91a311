"""Nouns that cross processes: frozen records without I/O. It imports nothing of gpuwatch."""
