"""The names, units and labels of dcgm-exporter over the same samples."""
