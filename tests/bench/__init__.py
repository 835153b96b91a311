"""Benchmarks against peers, in one run on one machine: `make bench`, and the long run: `make soak`."""
