"""The hardware campaign: what gpuwatch says of a real GPU beside what is known of it, in under nine minutes.

`scripts/gpu-campaign` packs it with all it needs; docs/hardware.md says how to run it. It only reads the driver:
`guard` refuses every other call of NVML, and its own kernels are the only load.
"""
