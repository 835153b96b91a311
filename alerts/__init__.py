"""Alerts: the rules are `gpuwatch.rules.yaml`; the code beside them writes what is generated from them."""
