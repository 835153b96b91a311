"""A real Kubernetes control plane for tests: etcd and kube-apiserver on loopback. No kubelet, scheduler or controllers.

Nodes and pods are objects that somebody makes through the API; nothing runs them. What controllers would write (the
status of a PodDisruptionBudget, the default service account of a namespace) tests write themselves.
"""

import contextlib
import json
import ssl
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import trustme

from tests.cluster.api import Api
from tests.cluster.binaries import Binaries
from tests.e2e.processes import running
from tests.ports import free_port
from tests.waiting import until

ISSUER = "https://kubernetes.default.svc"


class ControlPlane:
    """Runs between `start()` and `stop()`, or as a context manager. Fits tests.cluster.api.ApiServer."""

    def __init__(self, directory: Path, binaries: Binaries, options: tuple[str, ...] = ()) -> None:
        self.directory = directory
        self.url = ""
        self.ca_file = directory / "ca.pem"
        self._binaries, self._options = binaries, options
        self._store = 0  # the port of etcd
        self._ca = trustme.CA()
        self._running = contextlib.ExitStack()

    def start(self) -> Self:
        """Return when it serves; AssertionError with its log when it does not."""
        self._write_keys()
        self._store, port = free_port(), free_port()
        self.url = f"https://127.0.0.1:{port}"
        try:
            self._run("etcd", self._etcd_command())
            apiserver = self._run("kube-apiserver", self._apiserver_command(port))
            until(lambda: self._ready(apiserver), "kube-apiserver is ready", step=0.1)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop both; the server first, as it complains about a lost store."""
        self._running.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def kubeconfig(self, user: str = "admin", group: str = "") -> Path:
        """Write a kubeconfig of a user that its certificate names. `admin` may do everything, others what RBAC says."""
        group = group or ("system:masters" if user == "admin" else "")
        name = quote(f"{user} {group}", safe="")
        key, certificate = self.directory / f"{name}.key", self.directory / f"{name}.pem"
        if not certificate.exists():
            issued = self._ca.issue_cert("client.test", common_name=user, organization_name=group or "nobody")
            issued.private_key_pem.write_to_path(key)
            issued.cert_chain_pems[0].write_to_path(certificate)
        return self._write_kubeconfig(name, {"client-certificate": str(certificate), "client-key": str(key)})

    def token_kubeconfig(self, token: str) -> Path:
        """A kubeconfig of whoever a bearer token names."""
        return self._write_kubeconfig(f"token-{token[-16:]}", {"token": token})

    def service_account_token(self, namespace: str, name: str, pod: Mapping[str, Any] | None = None) -> str:
        """A token as the kubelet would project it into `pod`: bound to it, with a claim to its node.

        The service account must be there; the pod too, running under it.
        """
        spec: dict[str, Any] = {"audiences": [ISSUER], "expirationSeconds": 3600}
        if pod is not None:
            bound = {key: pod["metadata"][key] for key in ("name", "uid")}
            spec["boundObjectRef"] = {"apiVersion": "v1", "kind": "Pod", **bound}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        status, answer = Api(self).request("POST", path, request)
        assert status == 201, answer
        token: str = answer["status"]["token"]
        return token

    def _run(self, name: str, command: list[str]) -> Any:
        return self._running.enter_context(running(command, self.directory / f"{name}.log"))

    def _ready(self, apiserver: Any) -> bool:
        log = self.directory / "kube-apiserver.log"
        assert apiserver.poll() is None, f"kube-apiserver ended:\n{log.read_text()[-4000:]}"
        context = ssl.create_default_context(cafile=str(self.ca_file))
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{self.url}/readyz", context=context, timeout=5):
            return True
        return False

    def _write_keys(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._ca.cert_pem.write_to_path(self.ca_file)
        server = self._ca.issue_cert("127.0.0.1")
        server.private_key_pem.write_to_path(self.directory / "server.key")
        server.cert_chain_pems[0].write_to_path(self.directory / "server.pem")
        accounts = trustme.CA(key_type=trustme.KeyType.RSA)  # only for its key
        accounts.private_key_pem.write_to_path(self.directory / "accounts.key")

    def _write_kubeconfig(self, name: str, user: Mapping[str, str]) -> Path:
        file = self.directory / f"{name}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self.ca_file)}}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": name}}],
            "current-context": "test",
        }
        file.write_text(json.dumps(config))  # JSON is YAML
        return file

    def _etcd_command(self) -> list[str]:
        url = f"http://127.0.0.1:{self._store}"
        return [
            str(self._binaries.etcd),
            f"--data-dir={self.directory / 'etcd'}",
            f"--listen-client-urls={url}",
            f"--advertise-client-urls={url}",
            "--listen-peer-urls=http://127.0.0.1:0",
            "--log-level=warn",
            "--unsafe-no-fsync",  # the data does not outlive the test anyway
        ]

    def _apiserver_command(self, port: int) -> list[str]:
        keys = self.directory
        return [
            str(self._binaries.apiserver),
            f"--etcd-servers=http://127.0.0.1:{self._store}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={keys}",
            f"--tls-cert-file={keys / 'server.pem'}",
            f"--tls-private-key-file={keys / 'server.key'}",
            f"--client-ca-file={self.ca_file}",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={keys / 'accounts.key'}",
            f"--service-account-signing-key-file={keys / 'accounts.key'}",
            "--authorization-mode=RBAC",
            "--allow-privileged",  # as everywhere
            "--disable-admission-plugins=ServiceAccount",  # nobody makes the default account that it asks for
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
            *self._options,
        ]
