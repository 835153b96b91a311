"""Which workloads hold more GPU than they use. Usage, findings and what to apply are pure; Prometheus and the service
do the I/O.
"""
