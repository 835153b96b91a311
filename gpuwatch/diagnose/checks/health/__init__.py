"""Whether each GPU is well: memory, heat and clocks, modes, XIDs."""
