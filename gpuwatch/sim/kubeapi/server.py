"""The cluster on a TCP port: one event loop on one thread, as many keep-alive connections as the clients like."""

import asyncio
import contextlib
import json
import socket
import ssl
import tempfile
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from gpuwatch.sim.kubeapi.cluster import ADMIN, Cluster
from gpuwatch.sim.kubeapi.connection import Connection

_TICK_SECONDS = 0.1
_SWITCH_SECONDS = 10.0
_BACKLOG = 1024


class SimulatedApiServer:
    """Serve `cluster` on 127.0.0.1 between `start()` and `stop()`, or as a context manager.

    Plain HTTP, but with `tls`, whose certificate must be good for 127.0.0.1; `ca_file` then goes into kubeconfigs.
    kubectl sends no token over plain HTTP: for it, use TLS or a cluster with `anonymous="admin"`.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        folder: Path | None = None,
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        ca_file: Path | None = None,
    ) -> None:
        self.cluster, self.port, self.ca_file = cluster, port, ca_file
        self._tls, self._folder = tls, folder
        self._undo = contextlib.ExitStack()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopping = asyncio.Event()
        self._started = threading.Event()
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()

    @property
    def url(self) -> str:
        """Where it is, once started."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def open_connections(self) -> int:
        """Clients connected now."""
        return len(self._connections)

    def start(self) -> Self:
        """Bind and serve from a daemon thread. Raises OSError when the port cannot be had."""
        listener = _listen(self.port)
        self.port = listener.getsockname()[1]
        self._stopping, self._started = asyncio.Event(), threading.Event()  # an event belongs to one loop
        self._thread = threading.Thread(target=self._run, args=(listener,), name="sim-kubeapi", daemon=True)
        self._thread.start()
        self._started.wait()
        self.cluster.on_gone.append(self._switch)
        return self

    def stop(self) -> None:
        """Cut everybody off and give the port back; the cluster keeps its state."""
        if self._loop is None or self._thread is None:
            return
        self.cluster.on_gone.remove(self._switch)
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._loop = self._thread = None
        self._undo.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def kubeconfig(self, user: str = ADMIN) -> Path:
        """Write the kubeconfig of a user and return its path; one who is new has no rights yet.

        It goes into `folder`, or else into a folder of its own that is gone with `stop()`.
        """
        token = self.cluster.access.token_of(user) or self.cluster.add_user(user, ())
        trust = {} if self.ca_file is None else {"certificate-authority": str(self.ca_file)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "sim", "cluster": {"server": self.url, **trust}}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": user}}],
            "current-context": "sim",
        }
        if self._folder is None:
            self._folder = Path(self._undo.enter_context(tempfile.TemporaryDirectory(prefix="gpuwatch-kubeapi-")))
            self._undo.callback(setattr, self, "_folder", None)
        path = self._folder / f"kubeconfig-{user.replace(':', '-')}"
        path.touch(mode=0o600)
        path.write_text(json.dumps(config, indent=2))
        return path

    def _run(self, listener: socket.socket) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            runner.run(self._serve(listener))

    async def _serve(self, listener: socket.socket) -> None:
        await self._open(listener)
        self._started.set()
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _TICK_SECONDS)
            self.cluster.tick()
        self._shut()
        await asyncio.sleep(0)

    async def _open(self, listener: socket.socket) -> None:
        loop, cluster = asyncio.get_running_loop(), self.cluster
        self._server = await loop.create_server(
            lambda: Connection(cluster.handle, cluster.drop, self._connections),
            sock=listener,
            ssl=self._tls,
            backlog=_BACKLOG,
        )

    def _shut(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in tuple(self._connections):
            connection.cut()

    def _switch(self, gone: bool) -> None:
        if self._loop is None:
            return
        done = asyncio.run_coroutine_threadsafe(self._come_or_go(gone=gone), self._loop)
        if threading.current_thread() is not self._thread:
            done.result(_SWITCH_SECONDS)

    async def _come_or_go(self, *, gone: bool) -> None:
        if gone:
            self._shut()
        elif self._server is None:
            await self._open(_listen(self.port))


def _listen(port: int) -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
    except OSError:
        listener.close()
        raise
    return listener
