"""Saves energy within a bounded slowdown, and shares a node power budget. Model, energy, gates, budget and cycle are
pure; actuation sets the GPUs, the service runs it.
"""
