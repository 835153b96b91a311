"""Are the GPUs healthy? Checks, XID classes and the judge that makes findings. This package does no I/O and imports the
model and the configuration.
"""
