"""A simulated Kubernetes API server: nodes, pods, leases, events, budgets and evictions, as gpuwatch uses them."""
