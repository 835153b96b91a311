"""The world in: one file per outside interface."""
