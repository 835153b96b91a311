"""The simulated API server as the contract tests want it: with TLS, like the real one here."""

import ssl
from pathlib import Path

import trustme

from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer


class Simulated(SimulatedApiServer):
    """Fits tests.cluster.api.ApiServer."""

    def __init__(self, directory: Path) -> None:
        ca, tls = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        ca.cert_pem.write_to_path(directory / "ca.pem")
        ca.issue_cert("127.0.0.1").configure_cert(tls)
        super().__init__(SimulatedCluster(), folder=directory, tls=tls, ca_file=directory / "ca.pem")
