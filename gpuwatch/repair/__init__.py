"""Resets a sick GPU that nothing uses, on a node that is out of service, and proves that it works again. It runs beside
the remediator, which has no access to GPUs; it may import diagnosis and remediation, and has no access to Kubernetes.
"""
