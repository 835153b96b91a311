"""The exporter-toolkit web configuration file: what it takes, and how it says no."""

import pytest

from gpuwatch.http.web_config import load_web_config
from gpuwatch.model.errors import UsageError

HASH = "$2b$04$V5mVmhk9Y8cIE5o.P9JqjOVfLzE3hvWJMPz8kMpEZEz.oV0H/5GNi"

SAMPLE = f"""
tls_server_config:
  cert_file: server.crt
  key_file: /etc/keys/server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca/client.crt
  client_allowed_sans: [prometheus.monitoring.svc, 10.0.0.1]
  min_version: TLS13
  cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256]
  prefer_server_cipher_suites: true
http_server_config:
  http2: false
  headers:
    Strict-Transport-Security: max-age=31536000
    X-Frame-Options: deny
    X-XSS-Protection: ""
basic_auth_users:
  alice: {HASH}
"""


@pytest.fixture
def load(tmp_path):
    def load(text):
        path = tmp_path / "web.yml"
        path.write_text(text)
        return load_web_config(path)

    return load


def test_the_whole_file(load, tmp_path):
    config = load(SAMPLE)
    tls = config.tls_server_config
    assert tls.files == (f"{tmp_path}/server.crt", "/etc/keys/server.key", f"{tmp_path}/ca/client.crt")
    assert tls.verifies_clients
    assert config.http_server_config.headers.pairs == (
        ("Strict-Transport-Security", "max-age=31536000"),
        ("X-Frame-Options", "deny"),
    )
    assert config.basic_auth_users == {"alice": HASH}


@pytest.mark.parametrize("text", ["", "{}", "basic_auth_users: {}"])
def test_nothing_protects_nothing(load, text):
    config = load(text)
    assert (config.tls_server_config, config.basic_auth_users) == (None, {})


@pytest.mark.parametrize(
    ("text", "key", "advice"),
    [
        ("tls_server_confg: {}", "tls_server_confg", "did you mean tls_server_config"),
        ("tls_server_config: {certfile: a}", "tls_server_config.certfile", "did you mean cert_file"),
        ("http_server_config: {headers: {X-Frame-Option: deny}}", "headers.X-Frame-Option", "X-Frame-Options"),
        ("basic_auth_user: {}", "basic_auth_user", "did you mean basic_auth_users"),
        ("rate_limit: {interval: 1s}", "rate_limit", "leave it out"),
        ("tls_server_config: {cert: PEM}", "tls_server_config.cert", "name that in cert_file"),
        ("zzz: 1", "zzz", "exporter-toolkit"),
    ],
)
def test_an_unknown_key_is_named_with_the_nearest(load, text, key, advice):
    with pytest.raises(UsageError) as caught:
        load(text)
    assert key in caught.value.what
    assert "web.yml" in caught.value.what
    assert advice in caught.value.next_step


BOTH = "cert_file: a, key_file: b"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tls_server_config: {cert_file: a}", "cert_file and key_file are both needed"),
        ("tls_server_config: {}", "both needed"),
        (f"tls_server_config: {{{BOTH}, min_version: TLS10}}", "tls_server_config.min_version.*TLS10"),
        (f"tls_server_config: {{{BOTH}, min_version: TLS13, max_version: TLS12}}", "min_version is above"),
        (f"tls_server_config: {{{BOTH}, cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]}}", "TLS_RSA_WITH_RC4_128_SHA"),
        (f"tls_server_config: {{{BOTH}, client_ca_file: c}}", "client_ca_file needs"),
        (f"tls_server_config: {{{BOTH}, client_auth_type: RequireAndVerifyClientCert}}", "needs client_ca_file"),
        (f"tls_server_config: {{{BOTH}, client_auth_type: RequireAnyClientCert}}", "RequireAndVerifyClientCert"),
        (f"tls_server_config: {{{BOTH}, client_auth_type: Never}}", "client_auth_type.*Never"),
        (f"tls_server_config: {{{BOTH}, client_allowed_sans: [a]}}", "client_allowed_sans needs"),
        ("basic_auth_users: {alice: secret}", r"basic_auth_users.alice: Expected a bcrypt hash"),
        (f"basic_auth_users: {{alice: {HASH.replace('$04$', '$31$')}}}", "cost 4 to 18"),
        ("basic_auth_users: [alice]", "basic_auth_users"),
        ('http_server_config: {headers: {X-XSS-Protection: "1\\r\\nSet-Cookie: a"}}', "printable ASCII"),
        ("http_server_config: {headers: {X-Frame-Options: allow}}", "X-Frame-Options"),
        ("[1, 2]", "Expected `object`"),
        ("a: [", "expected (the )?node content"),
        ("a: \x00", r"U\+0000"),
        ("basic_auth_users:\n  alice: 0123456", r"line 2; the zero in front of the number"),
        ("http_server_config: {http2: 2026-13-01}", r"line 1 is wrong; http_server_config.http2: Expected `bool`"),
    ],
)
def test_what_is_wrong_is_reported(load, text, why):
    with pytest.raises(UsageError, match=r"web.yml") as caught:
        load(text)
    assert caught.match(why)
    assert "secret" not in str(caught.value), "a password written by mistake stays out of the log"


def test_a_missing_file_is_reported(tmp_path):
    with pytest.raises(UsageError, match=r"cannot read web configuration .*none.yml; No such file"):
        load_web_config(tmp_path / "none.yml")
