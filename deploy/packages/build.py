"""Makes .deb and .rpm, as a part of `python -m deploy.release`. The same tree and locks give the same bytes.

A package works with each Python from 3.11 on that a distribution has: the libraries that are the same for all lie once
below /usr/lib/gpuwatch/common, compiled ones below /usr/lib/gpuwatch/pythonX.Y, which is a virtual environment of that
Python. They are the wheels of requirements.lock, by hash, without the Kubernetes client: remediator, Node commands and
consents run in pods. nfpm packs them (https://nfpm.goreleaser.com; the version in go.mod, built by Go).
"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from deploy.sizes import canonical, packages
from gpuwatch import DISTRIBUTION, PROJECT_URL, __version__

HERE = Path(__file__).parent
TREE = HERE.parents[1]
SYSTEMD = TREE / "deploy/systemd"
UNITS = tuple(f"gpuwatch-{name}.service" for name in ("agent", "tuner", "tuner-guard", "tuner-progress", "repairer"))
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architecture as Debian and nfpm call it, and as wheels do."""
GLIBC = ("manylinux_2_28", "manylinux_2_17", "manylinux2014", "manylinux_2_12", "manylinux2010", "manylinux1")
"""What Debian 10, Ubuntu 20.04 and Enterprise Linux 8 can load."""


class CannotPack(Exception):
    """What is missing, and the next step."""


def make(folder: Path, wheel: Path, at: int, architectures: Iterable[str] = MACHINES) -> Iterator[Path]:
    """The .deb and the .rpm of each architecture, in `folder`, one after the other as asked for.

    `wheel`: gpuwatch's own; `at`: seconds since 1970, the time of all files. Raises CannotPack.
    """
    for architecture in architectures:
        with TemporaryDirectory(prefix="gpuwatch-package-") as place:
            tree = lay_out(Path(place), wheel, MACHINES[architecture])
            for form in ("deb", "rpm"):
                yield pack(folder, tree, architecture, form, at)


def lay_out(place: Path, wheel: Path, machine: str) -> Path:
    """The tree of the package's files, below the empty folder `place`. Raises CannotPack."""
    lock, wheels, tree = place / "lock.txt", place / "wheels", place / "tree"
    library = tree / "usr/lib/gpuwatch"
    lock.write_text("".join(locked()))
    wheels.mkdir()
    shutil.copy(wheel, wheels)
    pip("download", "--dest", wheels, "--require-hashes", "-r", lock, *target(PYTHONS[0], machine))
    # name-version-python-abi-platform.whl: what is compiled for one Python says so, the others are for all
    named = {file.name.split("-")[0]: file.name for file in wheels.iterdir()}
    compiled = {canonical(name) for name, file in named.items() if file.split("-")[3].startswith("cp")}
    shared = [each for name in named if (each := canonical(name)) not in compiled]
    common = library / "common"
    pip("install", "--target", common, "--no-index", "--find-links", wheels, *shared, *target(PYTHONS[0], machine))
    for python in PYTHONS:
        lock.write_text("".join(block for block in locked() if _name(block) in compiled))
        home = library / f"python{python}"
        site = home / f"lib/python{python}/site-packages"
        pip("install", "--target", site, "--require-hashes", "-r", lock, *target(python, machine))
        (site / "gpuwatch.pth").write_text("/usr/lib/gpuwatch/common\n")
        (home / "pyvenv.cfg").write_text(f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python}\n")
        (home / "bin").mkdir()
        (home / "bin/python").symlink_to(f"/usr/bin/python{python}")
    for scripts in [common / "bin", *library.glob("python*/lib/python*/site-packages/bin")]:
        shutil.rmtree(scripts, ignore_errors=True)  # of libraries, for people who program
    _own_files(tree)
    return tree


def _own_files(tree: Path) -> None:
    """Program, units and documents; nothing else is a program, and modes depend on no umask."""
    library, documents = tree / "usr/lib/gpuwatch", tree / f"usr/share/doc/{DISTRIBUTION}"
    programs = {"launcher": tree / "usr/bin/gpuwatch", "compile": library / "compile"}
    for source, place in {
        **{HERE / name: place for name, place in programs.items()},
        HERE / "start.py": library / "start.py",
        HERE / "copyright": documents / "copyright",
        HERE / "lintian-overrides": tree / f"usr/share/lintian/overrides/{DISTRIBUTION}",
        TREE / "LICENSE": documents / "LICENSE",
        SYSTEMD / "gpuwatch-tuner.service.d/enforce.conf": documents / "examples/enforce.conf",
        **{SYSTEMD / name: tree / f"usr/lib/systemd/system/{name}" for name in UNITS},
    }.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(source.read_bytes().replace(b"/usr/local/bin/gpuwatch", b"/usr/bin/gpuwatch"))
    (documents / "changelog.gz").write_bytes(gzip.compress((TREE / "CHANGELOG.md").read_bytes(), mtime=0))
    for path in (tree, *tree.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path in programs.values() else 0o644)


def locked() -> Iterator[str]:
    """Each block of requirements.lock, a version with its hashes, of what agent and tuner need."""
    here = Path(sysconfig.get_path("purelib"))
    needed = {canonical(found.metadata["Name"]) for found in packages(here, DISTRIBUTION)} - {DISTRIBUTION}
    blocks = re.findall(r"^[\w.-]+==(?:.*\\\n)*.*\n", (TREE / "requirements.lock").read_text(), re.MULTILINE)
    found = {_name(block): block for block in blocks}
    if missing := needed - found.keys():
        raise CannotPack(f"requirements.lock lacks {', '.join(sorted(missing))}; run: make constraints")
    return (found[name] for name in sorted(needed))


def _name(block: str) -> str:
    return canonical(block.partition("==")[0])


def target(python: str, machine: str) -> tuple[str, ...]:
    """Options with which pip chooses wheels for another machine than this one."""
    platforms = (option for glibc in GLIBC for option in ("--platform", f"{glibc}_{machine}"))
    return "--python-version", python, "--implementation", "cp", "--only-binary", ":all:", "--no-deps", *platforms


def pip(command: str, *arguments: str | Path) -> None:
    """Raises CannotPack with its output."""
    options = ("--no-compile",) if command == "install" else ()
    done = subprocess.run(
        [sys.executable, "-m", "pip", command, "--quiet", *options, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise CannotPack(f"pip {command}: {done.stderr.strip()[-2000:]}")


def pack(folder: Path, tree: Path, architecture: str, form: str, at: int) -> Path:
    """One package of the tree, by nfpm; `form`: deb or rpm. Raises CannotPack."""
    go = shutil.which("go")
    if go is None:
        raise CannotPack("nfpm, which packs .deb and .rpm, is built by Go, and there is no go on PATH; install Go 1.25")
    path = folder.resolve() / f"{DISTRIBUTION}_{__version__}_{architecture}.{form}"
    variables = {
        "ARCH": architecture,
        "VERSION": __version__,
        "MAINTAINER": f"gpuwatch <{PROJECT_URL}>",
        "URL": PROJECT_URL,
        "TREE": str(tree),
        "SOURCE_DATE_EPOCH": str(at),
    }
    command = [go, "tool", "nfpm", "package", "--config", "nfpm.yaml", "--packager", form, "--target", str(path)]
    done = subprocess.run(
        command, cwd=HERE, env={**os.environ, **variables}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise CannotPack(f"nfpm, {form} for {architecture}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return path
