"""Clients that mean no good, in a process of their own: `python -m tests.bench.http.clients KIND PORT NUMBER`."""

import contextlib
import itertools
import selectors
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

REQUEST = b"GET /-/healthy HTTP/1.1\r\nHost: localhost\r\n\r\n"
HOLD_SECONDS = 1.0


def connect(port: int) -> socket.socket:
    """A connection that is being made."""
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", port))
    return client


def pipelining(port: int, number: int) -> None:
    """Each sends requests as fast as they are taken, and throws the answers away."""
    selector = selectors.DefaultSelector()
    for _ in range(number):
        selector.register(connect(port), selectors.EVENT_READ | selectors.EVENT_WRITE)
    many = REQUEST * 1000
    while True:
        for key, events in selector.select():
            client = key.fileobj
            assert isinstance(client, socket.socket)
            try:
                if events & selectors.EVENT_READ and not client.recv(1 << 20):
                    raise ConnectionResetError
                if events & selectors.EVENT_WRITE:
                    client.send(many)
            except BlockingIOError:
                continue
            except OSError:  # it is connected anew, at once
                selector.unregister(client)
                client.close()
                selector.register(connect(port), selectors.EVENT_READ | selectors.EVENT_WRITE)


def idle(port: int, number: int) -> None:
    """Each connects and says nothing; what is closed is connected anew once a second."""
    clients = [connect(port) for _ in range(number)]
    while True:
        time.sleep(HOLD_SECONDS)
        for at, client in enumerate(clients):
            with contextlib.suppress(BlockingIOError):
                if not _alive(client):
                    client.close()
                    clients[at] = connect(port)


def connecting(port: int, number: int) -> None:
    """All connect at once; then each hangs up and connects again every HOLD_SECONDS, one after the other."""
    clients = [connect(port) for _ in range(number)]
    for turn in itertools.count():
        at = turn % number
        clients[at].close()
        clients[at] = connect(port)
        if turn % 10 == 0:
            time.sleep(10 * HOLD_SECONDS / number)


def reading(port: int, number: int) -> None:
    """All ask for the largest events answer at once, and again when they have it or are told to in a second; prints
    status and bytes of each answer.
    """
    with ThreadPoolExecutor(number) as readers:
        for _ in range(number):
            readers.submit(_read_for_ever, port)


def _read_for_ever(port: int) -> None:
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"GET /api/v1/events?limit=100000 HTTP/1.0\r\nHost: localhost\r\n\r\n")
            head = client.recv(1 << 16)
            size = len(head) + sum(map(len, iter(lambda: client.recv(1 << 20), b"")))
            sys.stdout.write(f"{head[9:12].decode('latin-1') or 'none'} {size}\n")
            sys.stdout.flush()
        time.sleep(1)


def _alive(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


KINDS = {each.__name__: each for each in (pipelining, idle, connecting, reading)}

if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        KINDS[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
