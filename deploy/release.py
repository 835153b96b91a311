"""Makes what is released: `python -m deploy.release [FOLDER [VERSION]]`. The same tree gives the same bytes.

With VERSION it is a release: the tree has to be of that version, committed, with a section in the changelog.

Every time in it is SOURCE_DATE_EPOCH, or that of the last commit. A release is what `SHA256SUMS` lists; the releaser
signs that file.
"""

import gzip
import hashlib
import io
import itertools
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from deploy import image
from deploy.packages import build, single_file
from gpuwatch import __version__

TREE = Path(__file__).resolve().parents[1]
ARCHIVES = {
    "gpuwatch-manifests": ("deploy/base", "deploy/components", "deploy/overlays", "deploy/examples"),
    "gpuwatch-monitoring": (
        *("alerts/*.yaml", "dashboards/*.json", "dashboards/kustomization.yaml", "dashboards/provisioning"),
        *("deploy/opentelemetry", "deploy/prometheus", "docs/runbooks"),
    ),
    "gpuwatch-machines": ("deploy/systemd", "deploy/slurm", "deploy/prometheus"),
}
"""Name to what it holds, at the same paths below a folder of its name. The chart is one more, as Helm packages it."""
CHART = "deploy/helm/gpuwatch"
COPIED = ("requirements.lock", "requirements-build.lock", "sbom.cdx.json", "licenses.txt")
"""Taken over as they are; the last two once `make sbom` has made them."""
SUMS = "SHA256SUMS"
NOTES = "NOTES.md"
"""The changelog's section of a release."""


class NotReady(Exception):
    """The tree is not that of the release; says why, and what to do."""


def notes(version: str) -> str:
    """What the changelog says about a release.

    Raises:
        NotReady: the tree is of another version, differs from its last commit, or the changelog has no dated section.
    """
    if version != __version__:
        raise NotReady(f"the tree is of {__version__}, not of {version}; run: make site VERSION={version}")
    changed = subprocess.run(
        ["git", "-C", str(TREE), "status", "--porcelain"], capture_output=True, text=True, check=True
    )
    if changed.stdout:
        raise NotReady("files differ from the last commit, so this could not be built again; commit them")
    return section((TREE / "CHANGELOG.md").read_text(), version)


def section(changelog: str, version: str) -> str:
    """The text below `## [1.2.3] - 2026-11-23`, without that heading. Raises NotReady."""
    headed = re.search(
        rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", changelog, re.DOTALL | re.MULTILINE
    )
    if headed is None or not headed[1].strip():
        raise NotReady(f"CHANGELOG.md has no section of {version}; head its section: ## [{version}] - YEAR-MONTH-DAY")
    return headed[1].strip() + "\n"


def epoch() -> int:
    """Seconds since 1970 that stand for every time. Raises CalledProcessError outside of a repository."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    last_commit = ["git", "-C", str(TREE), "log", "-1", "--format=%ct"]
    return int(given or subprocess.run(last_commit, capture_output=True, text=True, check=True).stdout)


def archive(files: Mapping[str, Path], at: int) -> bytes:
    """A .tar.gz of `files` (path in it to file) that depends on nothing but their contents and who may run them."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(files):
            member, contents = tarfile.TarInfo(name), files[name].read_bytes()
            member.size, member.mtime = len(contents), at
            member.mode = 0o755 if files[name].stat().st_mode & 0o100 else 0o644
            tar.addfile(member, io.BytesIO(contents))
    return gzip.compress(packed.getvalue(), mtime=at)


def below(*patterns: str) -> Iterator[Path]:
    """Files of the tree that git knows, or would know, at these paths and below; `*` stops at a folder."""
    git = ["git", "-C", str(TREE), "--glob-pathspecs"]
    listed = [*git, "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout
    return (TREE / name for name in dict.fromkeys(names.split("\0")) if name and (TREE / name).is_file())


def archives(at: int) -> Iterator[tuple[str, bytes]]:
    """Manifests, dashboards and alerts, units, and the chart: name and bytes."""
    for name, patterns in ARCHIVES.items():
        top = f"{name}-{__version__}"
        files = {f"{top}/{file.relative_to(TREE)}": file for file in below(*patterns)}
        yield f"{top}.tar.gz", archive(files, at)
    chart = {f"gpuwatch/{file.relative_to(TREE / CHART)}": file for file in below(CHART)}
    yield f"gpuwatch-{__version__}.tgz", archive(chart, at)


def python_packages(folder: Path, at: int) -> None:
    """Wheel and source distribution into `folder`, by the build backend of this environment."""
    hatchling = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(at)}
    subprocess.run(hatchling, cwd=TREE, env=environment, check=True, capture_output=True)


def make(folder: Path, version: str = "", architectures: Iterable[str] = build.MACHINES) -> None:
    """Write everything, and the checksums of it last. Raises NotReady for a `version` that cannot be released.

    `architectures`: of .deb, .rpm and .pex.
    """
    release_notes, at = notes(version) if version else "", epoch()
    folder.mkdir(parents=True, exist_ok=True)
    if release_notes:
        (folder / NOTES).write_text(release_notes)
    python_packages(folder, at)
    (wheel,) = folder.glob("*.whl")
    packages = [single_file.make(folder, wheel, at, architectures), build.make(folder, wheel, at, architectures)]
    if release_notes:  # `make image` makes it for a site
        packages.append(image.make(folder, at, image.architectures(), image.options()))
    try:
        for path in itertools.chain.from_iterable(packages):
            sys.stdout.write(f"{path}\n")
    except build.CannotPack as reason:
        if release_notes:
            raise NotReady(str(reason)) from None
        sys.stderr.write(f"without all packages: {reason}\n")
    for name, contents in archives(at):
        (folder / name).write_bytes(contents)
    for file in (TREE / name for name in COPIED):
        if file.exists():
            (folder / file.name).write_bytes(file.read_bytes())
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith(SUMS))
    sums = (f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (folder / SUMS).write_text("".join(sums))


if __name__ == "__main__":
    try:
        make(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"), sys.argv[2] if len(sys.argv) > 2 else "")
    except NotReady as reason:
        sys.exit(f"no release: {reason}")
