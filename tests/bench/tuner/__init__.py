"""How well the energy tuner does on workloads whose every setting is known: `make bench-tuner`."""
