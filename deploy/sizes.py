"""What an install of gpuwatch weighs: `python -m deploy.sizes`. Ends with 1 when something is over its bound.

Builds the wheel, installs it alone and with its extra into environments without pip, and prints megabytes (1e6 bytes)
of what was installed, bytecode included. `packages` gives the same for an environment that is there.
"""

import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions
from pathlib import Path

from gpuwatch import DISTRIBUTION

TREE = Path(__file__).resolve().parents[1]
BOUNDS = {"wheel": 1.5, "agent": 60.0, "with kubernetes": 220.0}
"""Megabytes; tests/image has the image's."""
_REQUIREMENT = re.compile(r"([\w.-]+)[^;]*(?:;(?P<marker>.*))?")


def canonical(name: str) -> str:
    """As package indexes write it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def packages(place: Path, *roots: str) -> Iterator[Distribution]:
    """What is installed at `place` of `roots` and of all that they need; extras are not followed."""
    installed = {canonical(found.metadata["Name"]): found for found in distributions(path=[str(place)])}
    waiting, seen = [canonical(root) for root in roots], set[str]()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in installed:
            continue
        seen.add(name)
        yield installed[name]
        for line in installed[name].requires or ():
            required = _REQUIREMENT.match(line)
            if required and "extra" not in (required["marker"] or ""):
                waiting.append(canonical(required[1]))


def megabytes(*places: Path) -> float:
    """Of files, and of all files below folders."""
    files = (file for place in places for file in (place.rglob("*") if place.is_dir() else (place,)))
    return sum(file.lstat().st_size for file in files if not file.is_dir()) / 1e6


def installed_size(found: Distribution) -> float:
    """Megabytes of the package's files that are there."""
    files = (Path(str(found.locate_file(file))) for file in found.files or ())
    return sum(file.lstat().st_size for file in files if file.is_file()) / 1e6


def build_wheel(folder: Path) -> Path:
    """The wheel of this tree, in `folder`. Needs the build backend from an index."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(TREE)]
    subprocess.run(pip, check=True)
    return next(folder.glob("*.whl"))


def measure(folder: Path) -> Iterator[tuple[str, float]]:
    """The wheel and both installs, each with its size in megabytes."""
    wheel = build_wheel(folder)
    yield "wheel", megabytes(wheel)
    for name, extra in (("agent", ""), ("with kubernetes", "[kubernetes]")):
        venv.create(folder / name, with_pip=False, symlinks=True)
        python = folder / name / "bin/python"
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--compile"]
        subprocess.run([*pip, f"{DISTRIBUTION}{extra} @ {wheel.as_uri()}"], check=True)
        yield name, megabytes(*(folder / name).glob("lib/python3*/site-packages"))


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = dict(measure(Path(folder)))
    for name, size in sizes.items():
        sys.stdout.write(f"{name:16} {size:7.2f} MB of {BOUNDS[name]:g}\n")
    sys.exit(any(size > BOUNDS[name] for name, size in sizes.items()))


if __name__ == "__main__":
    main()
