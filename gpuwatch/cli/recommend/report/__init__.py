"""The report of `gpuwatch recommend -o html`: one file that needs nothing else, for a manager and for an engineer."""
