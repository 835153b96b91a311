"""Decides what should be written to the Node: a pure function of the View, the Node and what is remembered. No I/O."""
