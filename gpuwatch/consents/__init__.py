"""What pods, namespaces and nodes agree to, read from the API server into a file, with the labels that the
metrics export. The tuner and the agent use it.
"""
