"""Makes the .pex, a program in one file, as a part of `python -m deploy.release`: for a look without installing.

It holds the wheels of requirements.lock that agent, tuner and commands need, for each Python and one kind of machine,
as the .deb does, and unpacks those of its Python in ~/.cache/pex when it is first run (https://docs.pex-tool.org).
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from packaging import tags

from deploy.packages.build import GLIBC, MACHINES, PYTHONS, CannotPack, locked, pip, target
from gpuwatch import DISTRIBUTION, __version__

IGNORE = b'os.environ["PEX_IGNORE_RCFILES"] = "1"\n'


def make(folder: Path, wheel: Path, at: int, architectures: Iterable[str] = MACHINES) -> Iterator[Path]:
    """The .pex of each architecture in `folder`.

    `wheel`: gpuwatch's own; `at`: seconds since 1970. Raises CannotPack.
    """
    for architecture in architectures:
        with TemporaryDirectory(prefix="gpuwatch-pex-") as place:
            path = folder.resolve() / f"{DISTRIBUTION}_{__version__}_{architecture}.pex"
            _make(Path(place), path, wheel, MACHINES[architecture], at)
            yield path


def _make(place: Path, path: Path, wheel: Path, machine: str, at: int) -> None:
    lock, wheels = place / "lock.txt", place / "wheels"
    lock.write_text("".join(locked()))
    wheels.mkdir()
    shutil.copy(wheel, wheels)
    platforms = []
    for python in PYTHONS:
        pip("download", "--dest", wheels, "--require-hashes", "-r", lock, *target(python, machine))
        file = place / f"python{python}.json"
        file.write_text(json.dumps(_platform(python, machine)))
        platforms += ["--complete-platform", str(file)]
    command = [
        *(sys.executable, "-m", "pex", f"{DISTRIBUTION}=={__version__}", "--no-pypi", "--find-links", str(wheels)),
        *(*platforms, "--console-script", "gpuwatch", "--output-file", str(path)),
        "--venv",  # a reader process is started as `python -m`: an environment of its own finds the modules
        *("--python-shebang", "/usr/bin/env python3"),
    ]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(at), "PEX_ROOT": str(place / "root")}
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotPack(f"pex for {machine}: {done.stderr.strip()[-2000:]}")
    _ignore_rcfiles(path)


def _ignore_rcfiles(path: Path) -> None:
    """Pex reads a `.pexrc` beside the file, which may name the interpreter: whoever may write to that folder, such as
    /tmp, would choose what root runs.
    """
    start = b"import os\nimport sys\n"
    with zipfile.ZipFile(path) as made:
        entries = [(each, made.read(each)) for each in made.infolist()]
    (main,) = (content for each, content in entries if each.filename == "__main__.py")
    if main.count(start) != 1:
        raise CannotPack("pex begins in another way than it did; see _ignore_rcfiles")
    body, mode = path.read_bytes(), path.stat().st_mode
    path.write_bytes(body[: body.index(b"PK\x03\x04")])  # the line with the interpreter
    with zipfile.ZipFile(path, "a") as anew:
        for each, content in entries:
            is_main = each.filename == "__main__.py"
            anew.writestr(each, content.replace(start, start + IGNORE) if is_main else content)
    path.chmod(mode)


def _platform(python: str, machine: str) -> dict[str, Any]:
    """What pex asks of a Python that is not here: markers of PEP 508, and tags of the wheels that it takes."""
    version = tuple(map(int, python.split(".")))
    places = [f"{glibc}_{machine}" for glibc in (*GLIBC, "linux")]
    found = [*tags.cpython_tags(version, platforms=places), *tags.compatible_tags(version, None, places)]
    markers = {
        "implementation_name": "cpython",
        "implementation_version": f"{python}.0",
        "os_name": "posix",
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
    }
    return {"marker_environment": markers, "compatible_tags": list(map(str, found))}
