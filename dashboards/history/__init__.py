"""Some hours of a fleet as a real Prometheus has them: what dashboards are tested on and drawn from.

Nobody waits for them: scenarios of the simulator are played on imaginary time, each moment's page is rendered by the
agent's own code, and promtool makes the blocks of a database out of the pages. `fleet` says who is in it, `blocks.get`
builds it, `server.prometheus` serves it.
"""
