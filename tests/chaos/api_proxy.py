"""A proxy before a real API server that answers late, with errors or not at all. It ends TLS with the server's key."""

import http.client
import json
import ssl
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import yaml

from tests import fast_yaml
from tests.cluster.api import SECONDS, credentials, refusal
from tests.cluster.controlplane import ControlPlane

LATENCY = 1.5
_DROPPED = ("connection", "transfer-encoding", "content-length", "keep-alive", "host", "authorization")


class ApiProxy:
    """Serves between `with`; `error` is a status or `drop`, `latency` seconds before each request."""

    def __init__(self, plane: ControlPlane) -> None:
        self.error: str | None = None
        self.latency = 0.0
        self.requests = 0
        self._plane = plane
        self._context, _ = credentials(plane.kubeconfig())
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None: ...

            def answer(self) -> None:
                proxy._pass_on(self)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients are killed
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(plane.directory / "server.pem", plane.directory / "server.key")
        # the handshake is the handler thread's: a client that is stopped keeps no other waiting
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="api-proxy")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def kubeconfig(self, folder: Path) -> Path:
        """One that leads here; the proxy adds the administrator's certificate."""
        said = fast_yaml.load(self._plane.kubeconfig().read_text())
        said["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self._server.server_address[1]}"
        file = folder / "proxy.kubeconfig"
        file.write_text(yaml.safe_dump(said))
        return file

    def _pass_on(self, client: BaseHTTPRequestHandler) -> None:
        self.requests += 1
        body = client.rfile.read(int(client.headers.get("content-length") or 0))
        time.sleep(self.latency)
        if self.error == "drop":
            client.close_connection = True
            return
        if self.error is not None:
            self._refuse(client, int(self.error))
            return
        place = urlsplit(self._plane.url)
        upstream = http.client.HTTPSConnection(place.hostname or "", place.port, timeout=SECONDS, context=self._context)
        with suppress(OSError, http.client.HTTPException):
            headers = {name: text for name, text in client.headers.items() if name.lower() not in _DROPPED}
            upstream.request(client.command, client.path, body or None, headers)
            response = upstream.getresponse()
            client.send_response(response.status)
            for name, text in response.getheaders():
                if name.lower() not in _DROPPED:
                    client.send_header(name, text)
            client.send_header("Connection", "close")  # also what ends a watch, which has no length
            client.end_headers()
            while part := response.read1(65536):
                client.wfile.write(part)
        client.close_connection = True
        upstream.close()

    def _refuse(self, client: BaseHTTPRequestHandler, status: int) -> None:
        body = json.dumps(refusal(status, None, "chaos").body).encode()
        client.send_response(status)
        client.send_header("Content-Type", "application/json")
        client.send_header("Content-Length", str(len(body)))
        client.end_headers()
        client.wfile.write(body)
