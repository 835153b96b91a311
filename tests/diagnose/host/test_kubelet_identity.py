"""Whose kubelet a kubeconfig is of: by its user's name, or by the certificate that kubeadm's file points to."""

import base64
import ssl

import pytest
import trustme
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.gathering.cluster import KUBECONFIGS, kubelet_kubeconfig, node_of

NODE = "gpu-node-7"
KEY = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"


def config(user="default-auth", current="ctx", **credentials):
    context = {"name": "ctx", "context": {"cluster": "c", "user": user}}
    users = [{"name": "other", "user": {}}, {"name": user, "user": credentials}]
    return yaml.safe_dump({"current-context": current, "contexts": [context], "users": users})


@pytest.fixture(scope="module")
def certificate():
    return trustme.CA().issue_cert(common_name=f"system:node:{NODE}").cert_chain_pems[0].bytes().decode()


def test_the_user_may_be_named_after_the_node(tmp_path):
    (tmp_path / "c").write_text(config(f"system:node:{NODE}"))
    assert node_of(tmp_path / "c") == NODE


def test_kubeadms_file_points_to_a_certificate_beside_its_key(tmp_path, certificate):
    (tmp_path / "current.pem").write_text(KEY + certificate)
    (tmp_path / "c").write_text(config(**{"client-certificate": str(tmp_path / "current.pem")}))
    assert node_of(tmp_path / "c") == NODE


def test_a_certificate_may_be_in_the_file(tmp_path, certificate):
    assert ssl.PEM_cert_to_DER_cert(certificate)
    (tmp_path / "c").write_text(config(**{"client-certificate-data": base64.b64encode(certificate.encode()).decode()}))
    assert node_of(tmp_path / "c") == NODE


@pytest.mark.parametrize(
    "text",
    ["", "[]", "a: [", "contexts: []", config("admin"), config("system:node:"), config(current="another"),
     config(**{"client-certificate": "/nowhere"}), config(**{"client-certificate-data": "%%%"}), config(token="t")],
)  # fmt: skip
def test_any_other_file_names_no_node(tmp_path, text):
    (tmp_path / "c").write_text(text)
    assert node_of(tmp_path / "c") is None


@given(st.binary(max_size=300))
def test_whatever_is_in_the_file_is_survived(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("kubelet") / "c"
    path.write_bytes(data)
    assert node_of(path) is None


def test_the_first_file_that_can_be_read_is_taken(tmp_path):
    assert kubelet_kubeconfig(tmp_path) is None
    for path in reversed(KUBECONFIGS):
        (tmp_path / path.lstrip("/")).parent.mkdir(parents=True)
        (tmp_path / path.lstrip("/")).write_text("")
        assert kubelet_kubeconfig(tmp_path) == tmp_path / path.lstrip("/")
