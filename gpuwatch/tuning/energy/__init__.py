"""The search for the clock that saves most within the bound, from samples of one GPU. No I/O."""
