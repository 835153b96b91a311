"""Basic authentication against bcrypt hashes, without ever stopping the event loop.

bcrypt is slow by design: one check runs at a time, in a thread of its own that nobody waits for at exit,
and few may queue. What matched once is remembered as a keyed digest, so a scraper pays once.
"""

import asyncio
import binascii
import contextlib
import hashlib
import secrets
import threading
from collections.abc import Callable, Mapping

from gpuwatch.http.message import RETRY_AFTER, Response, text

_REMEMBERED = 32
_QUEUE = 8
_BCRYPT_BYTES = 72  # more were always ignored; the library has begun to refuse them
_UNAUTHORIZED = text(401, "unauthorized", (("WWW-Authenticate", 'Basic realm="gpuwatch", charset="UTF-8"'),))
_BUSY = text(503, "too many logins at once", RETRY_AFTER)


class BasicAuth:
    """Admit the users of `users` (name -> bcrypt hash); for the event loop's thread only."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = {name.encode(): stored.encode() for name, stored in users.items()}
        # unknown users are checked as dearly as known ones; the cost stands at [4:6] of a hash
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
        if not await self._matches(password, stored) or user not in self._users:
            return _UNAUTHORIZED
        self._remembered[digest] = None
        if len(self._remembered) > _REMEMBERED:
            del self._remembered[next(iter(self._remembered))]
        return None

    async def _matches(self, password: bytes, stored: bytes) -> bool:
        import bcrypt

        self._queue += 1
        try:
            async with self._one_at_a_time:
                return await _in_daemon_thread(lambda: bcrypt.checkpw(password[:_BCRYPT_BYTES], stored))
        finally:
            self._queue -= 1


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
    """Return what `call` returns; unlike an executor's, its thread never holds up the end of the process."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[bool] = loop.create_future()

    def settle(value: bool) -> None:
        if not result.done():
            result.set_result(value)

    def work() -> None:
        try:
            value = call()
        except ValueError:  # a hash bcrypt does not take matches nothing
            value = False
        with contextlib.suppress(RuntimeError):  # the loop has closed meanwhile
            loop.call_soon_threadsafe(settle, value)

    threading.Thread(target=work, name="bcrypt", daemon=True).start()
    return await result
