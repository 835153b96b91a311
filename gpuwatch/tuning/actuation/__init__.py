"""The only code that sets clocks and power limits: record first, set, read back, restore. The guard that restores is
here too.
"""
