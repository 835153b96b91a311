"""axe-core, Deque's accessibility checker: fetched once with npm, which checks what `package-lock.json` pins.

It is not in Debian or on PyPI. It stays in `~/.cache/gpuwatch/axe-HASH/`, where HASH covers what is pinned.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.deploy.tools import INSTALL, SECONDS, without
from tests.gobuild import cache, locked

PINNED = Path(__file__).parent


def axe_script() -> str:
    """The script for the page. Without npm or its registry the test is skipped, in CI failed."""
    lock = PINNED / "package-lock.json"
    place = cache() / f"axe-{hashlib.sha256(lock.read_bytes()).hexdigest()[:12]}"
    cache().mkdir(parents=True, exist_ok=True)
    with locked(cache() / "axe.lock"):
        if not place.exists():
            npm = Path(sys.executable).with_name("npm")
            if not npm.exists():
                without(f"no {npm}: axe-core cannot be fetched; run: make test, or pip install --group test")
            with tempfile.TemporaryDirectory(dir=cache()) as work:
                for name in ("package.json", "package-lock.json"):
                    shutil.copy(PINNED / name, work)
                done = subprocess.run(
                    [npm, *INSTALL], cwd=work, capture_output=True, text=True, check=False, timeout=SECONDS
                )
                if done.returncode:
                    without(f"npm could not fetch axe-core: {done.stderr[-1000:]}")
                (Path(work) / "node_modules/axe-core").rename(place)
    return (place / "axe.min.js").read_text()
