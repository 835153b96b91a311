"""The physics of a simulated node: load, heat, clocks, faults, and the scenarios that drive them."""
