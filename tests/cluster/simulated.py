"""The simulated API server as the contract tests want it: with TLS, and with no controllers, like the real one here."""

import ssl
from pathlib import Path

import trustme

from gpuwatch.sim.kubeapi import Cluster, SimulatedApiServer


class Simulated(SimulatedApiServer):
    """Fits tests.cluster.api.ApiServer."""

    def __init__(self, directory: Path) -> None:
        ca, tls = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.cert_pem.write_to_path(directory / "ca.pem")
        ca.issue_cert("127.0.0.1").configure_cert(tls)
        cluster = Cluster(live_budgets=False)
        super().__init__(cluster, folder=directory, tls=tls, ca_file=directory / "ca.pem")

    def forget_history(self) -> None:
        """Compact the store."""
        with self.cluster.lock:
            self.cluster.store.compact()
