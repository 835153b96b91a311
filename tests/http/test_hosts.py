"""Who may read what over TCP: names of this machine against DNS rebinding, and pages for known users only."""

import base64
import http.client
import socket

import bcrypt
import pytest

from gpuwatch.http.server import Response, text
from tests.http.test_fairness import unix_ask
from tests.waiting import BOUND_SECONDS

ROUTES = {"/metrics": lambda _: Response(body=b"up"), "/api/view": lambda _: Response(body=b"secret")}
REFUSALS = {"/api/view": text(403, "for users only")}


def ask(server, path="/metrics", address="127.0.0.1", **headers):
    client = http.client.HTTPConnection(address, server.port, timeout=BOUND_SECONDS)
    try:
        client.request("GET", path, headers=headers)
        response = client.getresponse()
        return response.status, response.read()
    finally:
        client.close()


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:9400", "[::1]:9400", "[::1]", "10.1.2.3:80", "localhost", "LOCALHOST:1", "a.localhost",
     socket.gethostname(), "gpu.example.org:9400", ""],
)  # fmt: skip
def test_a_client_on_loopback_may_use_this_machines_names(serve, host):
    assert ask(serve(ROUTES, hosts=("*.example.org",)), Host=host) == (200, b"up")


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:9400", "localhost.evil.example", "127.0.0.1.evil.example", "[evil.example]",
     "evil.example@localhost"],
)  # fmt: skip
def test_a_page_whose_name_was_bound_to_loopback_reads_nothing(serve, host):
    server = serve(ROUTES, listen=":0", hosts=("*.example.org",))
    status, body = ask(server, Host=host)
    assert (status, b"agent.hosts" in body) == (421, True)
    assert server.stats().rejected["host"] == 1


def test_every_name_can_be_allowed(serve):
    assert ask(serve(ROUTES, hosts=("*",)), Host="proxied.example")[0] == 200


def test_who_comes_over_a_network_may_use_any_name(serve):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no other address than that of loopback")
        own = probe.getsockname()[0]
    assert ask(serve(ROUTES, listen="0.0.0.0:0"), address=own, Host="gpu-7.cluster.example")[0] == 200


def test_without_users_a_private_page_is_on_the_unix_socket_only(serve, tmp_path):
    path = tmp_path / "agent.sock"
    server = serve(ROUTES, without_users=REFUSALS, socket_path=path)
    assert ask(server, "/api/view") == (403, b"for users only\n")
    assert ask(server, "/metrics") == (200, b"up")
    assert unix_ask(path, b"/api/view").endswith(b"secret")
    assert server.stats().rejected["users_required"] == 1


def test_users_get_a_private_page(serve, tmp_path):
    config = tmp_path / "web.yml"
    stored = bcrypt.hashpw(b"geheim", bcrypt.gensalt(4)).decode()
    config.write_text(f"basic_auth_users: {{prometheus: {stored}}}\n")
    server = serve(ROUTES, without_users=REFUSALS, web_config=config)
    assert ask(server, "/api/view")[0] == 401
    login = "Basic " + base64.b64encode(b"prometheus:geheim").decode()
    assert ask(server, "/api/view", Authorization=login) == (200, b"secret")


def test_a_web_configuration_without_users_opens_no_private_page(serve, tmp_path):
    config = tmp_path / "web.yml"
    config.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    assert ask(serve(ROUTES, without_users=REFUSALS, web_config=config), "/api/view")[0] == 403
