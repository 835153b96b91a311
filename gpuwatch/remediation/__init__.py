"""Takes sick nodes out of service and returns them to it. Model, planning (pure) and service; it imports neither tuning
nor the command line.
"""
