"""Access to the TCP listener: the web configuration in force, read again when its files change."""

import asyncio
import binascii
import contextlib
import hashlib
import ipaddress
import logging
import os
import secrets
import ssl
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from gpuwatch.config.named_file import read_named_file
from gpuwatch.http.message import RETRY_AFTER, Response, text
from gpuwatch.http.web_config import CIPHERS, TlsServerConfig, WebConfig, load_web_config
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.errors import UsageError

logger = logging.getLogger(__name__)

_CHECK_SECONDS = 1.0
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "RequestClientCert": ssl.CERT_NONE,  # one that is requested and not verified has no effect
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}

_Stamps = dict[str, tuple[int, int, int] | None]


class WebGuard:
    """TLS, users and headers of the web configuration at `path`; for the event loop's thread only.

    Raises UsageError when the file, or a file that it names, cannot be used at the start. Later, a change that cannot
    be used, or that would protect less than before (as a half-written file does), leaves the previous one in force.
    """

    def __init__(self, path: Path, clock: Clock | None = None) -> None:
        self._path, self._clock = path, clock or SystemClock()
        self._stamps: _Stamps = {}
        self._config = WebConfig()
        self._users: BasicAuthChecker | None = None
        self.context: ssl.SSLContext | None = None
        """For new connections; None: plain HTTP."""
        self.headers: tuple[tuple[str, str], ...] = ()
        self.reload_failures = 0
        self._checked = self._clock.monotonic()
        self._load()

    @property
    def identifies(self) -> bool:
        """Whether every client has to identify itself: by a password, or by a certificate of its own."""
        tls = self._config.tls_server_config
        return bool(self._config.basic_auth_users) or (
            tls is not None and tls.client_auth_type == "RequireAndVerifyClientCert"
        )

    def refresh(self) -> "WebGuard":
        """Apply changed files; checks at most once a second."""
        now = self._clock.monotonic()
        if now - self._checked < _CHECK_SECONDS:
            return self
        self._checked = now
        if _stamps(self._stamps) != self._stamps:
            try:
                self._load()
                logger.info("web configuration %s read again", self._path)
            except UsageError as error:
                self.reload_failures += 1
                logger.error("%s; the web configuration read before stays in force", error)
        return self

    async def refuse(self, authorization: str | None) -> Response | None:
        """Return the refusal of a request without valid credentials, or None."""
        return await self._users.refuse(authorization) if self._users else None

    def allows(self, certificate: Mapping[str, Any] | None) -> bool:
        """Return whether a verified client certificate (`SSLSocket.getpeercert`) bears an allowed name."""
        tls = self._config.tls_server_config
        if tls is None or not tls.client_allowed_sans:
            return True
        names = (certificate or {}).get("subjectAltName", ())
        # as Go writes them: OpenSSL writes IPv6 addresses in full
        given = {str(ipaddress.ip_address(value)) if kind == "IP Address" else value for kind, value in names}
        return not given.isdisjoint(tls.client_allowed_sans)

    def _load(self) -> None:
        self._stamps = _stamps(self._stamps or [str(self._path)])
        config = load_web_config(self._path)
        tls, users = config.tls_server_config, config.basic_auth_users
        self._stamps = _stamps([str(self._path), *(tls.files if tls else ())])
        context = _context(tls) if tls else None
        walls = zip(("TLS", "client certificates", "passwords"), _walls(self._config), _walls(config), strict=True)
        for what, was, remains in walls:
            if remains < was:
                why = f"it would protect less while serving: {what} were asked for before"
                raise UsageError(
                    f"web configuration {self._path} not taken over", why, "restart gpuwatch if that is meant"
                )
        if users != self._config.basic_auth_users:
            self._users = BasicAuthChecker(users)
        self._config, self.context = config, context
        self.headers = config.http_server_config.headers.pairs


def _stamps(files: Iterable[str]) -> _Stamps:
    """Return what changes when a file is written or replaced; None for a file that is not there."""
    stamps: _Stamps = {}
    for file in files:
        try:
            found = os.stat(file)
            stamps[file] = (found.st_mtime_ns, found.st_ino, found.st_size)
        except OSError:
            stamps[file] = None
    return stamps


def _walls(config: WebConfig) -> tuple[int, int, int]:
    tls = config.tls_server_config
    return tls is not None, _CLIENT_AUTH[tls.client_auth_type] if tls else 0, bool(config.basic_auth_users)


def _context(tls: TlsServerConfig) -> ssl.SSLContext:
    """Return the TLS context of `tls`; raises UsageError naming the file that cannot be used."""
    for file in tls.files:
        read_named_file(file, "", "--web-config")  # OpenSSL, which reads it by name, would wait for a FIFO
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = _VERSIONS[tls.min_version], _VERSIONS[tls.max_version]
    if tls.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    chosen = [suite for name in tls.cipher_suites if (suite := CIPHERS[name])]
    if chosen:
        context.set_ciphers(":".join(chosen))
    what = f"cannot use certificate {tls.cert_file} with key {tls.key_file}"
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password="")  # never asks at the terminal
        if tls.client_ca_file:
            what = f"cannot use client_ca_file {tls.client_ca_file}"
            context.load_verify_locations(tls.client_ca_file)
    except (OSError, ValueError) as error:  # SSLError is an OSError
        why = getattr(error, "reason", None) or str(error)
        raise UsageError(
            what, why, "both must be PEM, and the key the certificate's own, without a password"
        ) from error
    context.verify_mode = _CLIENT_AUTH[tls.client_auth_type]
    return context


_REMEMBERED = 32
_QUEUE = 8
_BCRYPT_BYTES = 72  # bcrypt ignores further ones; newer versions of the library refuse them
_UNAUTHORIZED = text(401, "unauthorized", (("WWW-Authenticate", 'Basic realm="gpuwatch", charset="UTF-8"'),))
_BUSY = text(503, "too many logins at once", RETRY_AFTER)


class BasicAuthChecker:
    """Admit the users of `users` (name -> bcrypt hash); for the event loop's thread only."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = {name.encode(): stored.encode() for name, stored in users.items()}
        # the check of an unknown user takes as long as that of a known one; a hash has its cost at [4:6]
        self._decoy = max(self._users.values(), key=lambda stored: stored[4:6])
        self._secret = secrets.token_bytes(32)
        self._remembered: dict[bytes, None] = {}
        self._one_at_a_time = asyncio.Lock()
        self._queue = 0

    async def refuse(self, authorization: str | None) -> Response | None:
        """Return 401 without valid credentials, 503 when too many are being checked, None when they match."""
        credentials = _credentials(authorization)
        if credentials is None:
            return _UNAUTHORIZED
        user, password = credentials
        stored = self._users.get(user, self._decoy)
        digest = hashlib.blake2b(b"\0".join((user, stored, password)), key=self._secret).digest()
        if digest in self._remembered:
            return None
        if self._queue >= _QUEUE:
            return _BUSY
        import bcrypt

        self._queue += 1
        try:
            async with self._one_at_a_time:
                matches = await _in_daemon_thread(lambda: bcrypt.checkpw(password[:_BCRYPT_BYTES], stored))
        finally:
            self._queue -= 1
        if not matches or user not in self._users:
            return _UNAUTHORIZED
        self._remembered[digest] = None
        if len(self._remembered) > _REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        return None


def _credentials(authorization: str | None) -> tuple[bytes, bytes] | None:
    scheme, _, token = (authorization or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = binascii.a2b_base64(token.strip(), strict_mode=True).partition(b":")
    except ValueError:
        return None
    return (user, password) if colon else None


async def _in_daemon_thread(call: Callable[[], bool]) -> bool:
    """Return what `call` returns; unlike an executor's, its thread never delays the end of the process."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[bool] = loop.create_future()

    def settle(value: bool) -> None:
        if not result.done():
            result.set_result(value)

    def work() -> None:
        try:
            value = call()
        except ValueError:  # a hash that bcrypt refuses matches nothing
            value = False
        with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(settle, value)

    threading.Thread(target=work, name="bcrypt", daemon=True).start()
    return await result
