"""Pure decisions: no I/O, no clock, standard library and model only."""
