"""The file of --http-config: what Prometheus takes there, and how it says no."""

import pytest

from gpuwatch.model.errors import UsageError
from gpuwatch.rightsizing.prometheus.config import basic, load_http_config


@pytest.fixture
def load(tmp_path):
    (tmp_path / "secret").write_text("hush\n")

    def load(text):
        path = tmp_path / "http.yaml"
        path.write_text(text)
        return load_http_config(path)

    return load


@pytest.mark.parametrize(
    ("text", "headers"),
    [
        ("", {}),
        ("basic_auth: {username: ann, password: b}", {"Authorization": basic("ann", "b")}),
        ("basic_auth: {username_file: secret, password_file: secret}", {"Authorization": basic("hush", "hush")}),
        ("authorization: {credentials_file: secret}", {"Authorization": "Bearer hush"}),
        ("authorization: {type: Token, credentials: a}", {"Authorization": "Token a"}),
        ("bearer_token: a", {"Authorization": "Bearer a"}),
        ("bearer_token_file: secret", {"Authorization": "Bearer hush"}),
        ("http_headers: {X-Scope-OrgID: {values: [a, b]}}", {"X-Scope-OrgID": "a,b"}),
        ("http_headers: {X-Key: {files: [secret]}}", {"X-Key": "hush"}),
        ("follow_redirects: true\nenable_http2: false", {}),
    ],
)
def test_every_way_to_log_in(load, text, headers):
    assert load(text).headers() == headers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("oauth2: {client_id: a}", "cannot do oauth2"),
        ("sigv4: {}", "cannot do sigv4"),
        ("basic_auht: {}", "did you mean basic_auth"),
        ("tls_config: {insecure_skip_verfy: true}", "did you mean tls_config.insecure_skip_verify"),
        ("tls_config: {insecure_skip_verify: 3}", "tls_config.insecure_skip_verify"),
        ("basic_auth: {username: a}\nbearer_token: b", "several of basic_auth"),
        ("[", "line 2"),
        ("- a", "no mapping"),
    ],
)
def test_what_it_cannot_follow_is_named(load, text, words):
    with pytest.raises(UsageError, match=words):
        load(text)


@pytest.mark.parametrize("text", ['bearer_token: "hush', "bearer_token: *hush", "a: b\nbearer_token: hush: hush"])
def test_what_is_no_yaml_is_reported_by_its_line_and_without_its_secrets(load, text):
    with pytest.raises(UsageError, match=r"line [12]") as caught:
        load(text)
    assert "hush" not in str(caught.value)


def test_a_token_that_was_renewed_is_read_again(load, tmp_path):
    config = load("authorization: {credentials_file: secret}")
    (tmp_path / "secret").write_text("new")
    assert config.headers() == {"Authorization": "Bearer new"}
    (tmp_path / "secret").unlink()
    with pytest.raises(UsageError, match=r"cannot read .*secret"):
        config.headers()


def test_certificates_that_are_none_are_reported(load, tmp_path):
    with pytest.raises(UsageError, match=r"tls_config .*secret"):
        load("tls_config: {ca_file: secret}").tls_config.context()


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        load_http_config(tmp_path / "none.yaml")
