"""`gpuwatch demo`: agent, remediator and tuner on a simulated node with a story of faults."""
