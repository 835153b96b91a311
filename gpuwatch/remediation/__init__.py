"""Takes sick nodes out of service and gives them back. Model, planning (pure) and service; it imports neither tuning
nor the command line.
"""
