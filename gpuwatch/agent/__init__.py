"""The process that joins driver, kernel log and workloads into one View per tick. It may import everything below it:
telemetry, health, metrics and right-sizing; never remediation or tuning.
"""
