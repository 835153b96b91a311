"""What is wrong with the credentials of a kubeconfig, said when they are read: the official client tells of some of it
only to the log, of the rest only when it connects, in words that blame the API server.
"""

import logging
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def complaints() -> Iterator[list[str]]:
    """What the client says to the root logger in the block, in this thread, instead of raising it: that a credential
    plugin (`exec`) is not there or has failed. It is not printed.
    """
    heard: list[str] = []
    listener = threading.get_ident()

    def hear(record: logging.LogRecord) -> bool:
        if record.thread == listener:
            heard.append(record.getMessage())
        return record.thread != listener

    root = logging.getLogger()
    root.addFilter(hear)
    try:
        yield heard
    finally:
        root.removeFilter(hear)


def check_certificates(authority: str | None, certificate: str | None, key: str | None) -> None:
    """Paths of PEM files, as far as there are any.

    Raises:
        ValueError: one of them holds no certificate or not the key of it.
        OSError: one of them cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if authority:
            context.load_verify_locations(authority)
    except ssl.SSLError as error:
        raise ValueError(f"its certificate-authority is no certificate ({_reason(error)})") from error
    try:
        if certificate:
            context.load_cert_chain(certificate, key, password="")  # else OpenSSL asks at the terminal
    except ssl.SSLError as error:
        why = f"its client-certificate and client-key are no certificate and its key ({_reason(error)})"
        raise ValueError(why) from error


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()
