"""Usage of one workload as histograms and peaks in bounded memory. No I/O."""
