"""The simulated API server as the contract tests want it: with TLS, like the real one here."""

import json
import ssl
from pathlib import Path
from typing import Self

import trustme

from gpuwatch.sim.kubeapi.cluster import ADMIN, SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer


class Simulated(SimulatedApiServer):
    """Fits tests.cluster.api.ApiServer."""

    def __init__(self, directory: Path) -> None:
        ca, self._tls = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca_file = directory / "ca.pem"
        ca.cert_pem.write_to_path(self.ca_file)
        ca.issue_cert("127.0.0.1").configure_cert(self._tls)
        super().__init__(SimulatedCluster(), folder=directory)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"

    def start(self) -> Self:
        super().start()
        assert self._http is not None
        self._http.socket = self._tls.wrap_socket(self._http.socket, server_side=True)
        return self

    def kubeconfig(self, user: str = ADMIN) -> Path:
        path = super().kubeconfig(user)
        config = json.loads(path.read_text())
        config["clusters"][0]["cluster"]["certificate-authority"] = str(self.ca_file)
        path.write_text(json.dumps(config))
        return path
