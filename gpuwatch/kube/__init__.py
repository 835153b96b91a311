"""The client of the API server. Only `transport` imports the package `kubernetes`, and only processes that need the API
server load it.
"""
