"""Samples and events of one driver, through pynvml or a module of its shape. Only this folder, the tuner's actuation
and the simulator import pynvml.
"""
