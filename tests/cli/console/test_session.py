"""What commands print of themselves."""

import pytest

from gpuwatch.cli.console.session import Session

USERS = "basic_auth_users: {alice: $2b$04$kBHyyL0xuC9Rjo3Wk1ZB9ODvxHkYTVaRt9V5kcZPNZlpNMFXPV0OG}\n"


@pytest.mark.parametrize(
    ("web_config", "scheme"),
    [(None, "http"), (USERS, "http"), ("tls_server_config: {cert_file: a.pem, key_file: a.pem}\n", "https")],
)
def test_the_urls_of_the_pages_open_them(tmp_path, capsys, web_config, scheme):
    """Users alone do not make it TLS."""
    file = tmp_path / "web.yml"
    file.write_text(web_config or "")
    Session().show_pages(9400, "10.1.2.3:9400", str(file) if web_config else "")
    assert f"{scheme}://10.1.2.3:9400/metrics\n" in capsys.readouterr().err
