"""Dashboards' queries and recording rules on a fleet of thousands of GPUs, in a real Prometheus.

Real pages of a few simulated nodes (dashboards.history), with what the recording rules make of them, become a fleet:
every node of it has the series of one of the simulated nodes. `fleet` does that, `tsdb` writes the block, `boards`
times the queries of dashboards, `rules` the groups of rules. `python -m tests.bench.scale` prints the tables.
"""
