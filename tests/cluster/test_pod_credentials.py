"""A pod asks the real API server with the files of its service account, and without the official client."""

import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from gpuwatch.kube import credentials
from gpuwatch.kube.errors import Unauthorized, Unavailable
from gpuwatch.kube.reader import NodeReader
from gpuwatch.kube.transport import Transport
from gpuwatch.model.errors import UsageError
from tests.cluster.api import Api
from tests.cluster.conftest import PLANES
from tests.cluster.controlplane import ControlPlane
from tests.cluster.remediating import make_node
from tests.ports import free_port

pytestmark = pytest.mark.cluster
PLACE = "pod-credentials"
"""Name of the Node, and of all that is made for it."""

RBAC = "/apis/rbac.authorization.k8s.io/v1"


def installed(api: Api) -> None:
    """A namespace with an account that may read the one Node."""
    for path, name, body in (
        ("/api/v1/namespaces", PLACE, {}),
        (f"/api/v1/namespaces/{PLACE}/serviceaccounts", PLACE, {}),
        (f"{RBAC}/clusterroles", PLACE, {"rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"]}]}),
        (
            f"{RBAC}/clusterrolebindings",
            PLACE,
            {
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": PLACE},
                "subjects": [{"kind": "ServiceAccount", "namespace": PLACE, "name": PLACE}],
            },
        ),
    ):
        assert api.request("POST", path, {"metadata": {"name": name}, **body}).status == 201
    make_node(api, PLACE, "boot", "machine")


@pytest.fixture
def files(control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder as the kubelet mounts it into a pod."""
    PLANES.once(Api(control_plane), installed)
    (tmp_path / "token").write_text(control_plane.service_account_token(PLACE, PLACE))
    (tmp_path / "ca.crt").write_bytes(control_plane.ca_file.read_bytes())
    monkeypatch.setattr(credentials, "SERVICE_ACCOUNT", tmp_path / "token")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", control_plane.url.rpartition(":")[2])
    return tmp_path


def read() -> str:
    """The Node by a new connection."""
    return NodeReader(Transport(), PLACE).node().name


def test_it_reads_its_node_and_loads_no_client(files: Path) -> None:
    code = f"""
import sys, pathlib
from gpuwatch.kube import credentials
credentials.SERVICE_ACCOUNT = pathlib.Path({str(files / "token")!r})
from gpuwatch.kube.reader import NodeReader
from gpuwatch.kube.transport import Transport
print(NodeReader(Transport(), {PLACE!r}).node().name, "kubernetes" in sys.modules, "urllib3" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == f"{PLACE} False True\n", done.stderr


def test_a_new_token_is_read_once_the_old_one_is_refused(files: Path) -> None:
    token = (files / "token").read_text()
    (files / "token").write_text("stale")
    reader = NodeReader(Transport(), PLACE)
    with pytest.raises(Unauthorized):
        reader.node()
    (files / "token").write_text(f"{token}\n")
    assert reader.node().name == PLACE


def test_a_server_of_another_authority_is_not_trusted(files: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(files / "ca.crt"))
    with pytest.raises(Unavailable, match="certificate verify failed"):
        read()


def test_an_authority_that_is_none_and_a_token_that_is_gone_are_reported(files: Path) -> None:
    authority = (files / "ca.crt").read_bytes()
    (files / "ca.crt").write_text("no certificate")
    with pytest.raises(UsageError, match="certificate-authority is no certificate"):
        read()
    (files / "ca.crt").write_bytes(authority)
    transport = Transport()
    assert transport.server.startswith("https://127.0.0.1:")
    (files / "token").unlink()
    with pytest.raises(UsageError, match="cannot read the pod's service account token"):
        NodeReader(transport, PLACE).node()


def test_a_proxy_is_used_but_for_addresses_without(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Unavailable, match="Connection refused"):
        read()
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    assert read() == PLACE


def test_an_address_of_version_6_is_put_into_brackets(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "::1")
    assert Transport().server.startswith("https://[::1]:")
