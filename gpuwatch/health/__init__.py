"""Are the GPUs well? Checks, XID classes and the judge that gives findings. It does no I/O and imports the model and
the configuration.
"""
