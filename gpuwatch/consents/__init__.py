"""What pods, namespaces and nodes agree to, read from the API server into a file. Only the tuner and right-sizing use
it.
"""
