"""What an install weighs stays within its bounds, and an install of the agent alone runs."""

import subprocess
import zlib
from importlib.metadata import distribution
from pathlib import Path

import pytest

import gpuwatch
from deploy import sizes

PACKAGE = Path(gpuwatch.__file__).parent
SITE = Path(distribution("click").locate_file(""))
OF_PEERS = 12.0
"""Megabytes: gpuwatch with its bytecode, and bytecode of what it needs that this environment has not written."""


def test_what_the_agent_needs_fits_beside_it():
    """`test_installs_stay_within_their_bounds` installs it."""
    needed = {sizes.canonical(each.metadata["Name"]): each for each in sizes.packages(SITE, gpuwatch.DISTRIBUTION)}
    assert {"grpcio", "msgspec", "rich"} <= needed.keys()
    assert not {"kubernetes", "aiohttp", "urllib3", "requests"} & needed.keys()
    assert sum(map(sizes.installed_size, needed.values())) < sizes.BOUNDS["agent"] - OF_PEERS


def test_the_wheel_holds_the_package_and_no_more_than_it_may():
    files = [file for file in PACKAGE.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    files += list((PACKAGE.parent / "docs/runbooks").glob("*.md"))
    assert {file.suffix for file in files} <= {".py", ".typed", ".json", ".yaml", ".html", ".css", ".js", ".md", ".ptx"}
    compressed = sum(len(zlib.compress(file.read_bytes(), 6)) + 300 for file in files)
    assert compressed / 1e6 < sizes.BOUNDS["wheel"]


@pytest.mark.slow
def test_installs_stay_within_their_bounds(tmp_path):
    """Each module of an install without the extra can be imported: what it lacks is loaded where it is used."""
    measured = dict(sizes.measure(tmp_path))
    assert {name: size for name, size in measured.items() if size > sizes.BOUNDS[name]} == {}
    python = tmp_path / "agent/bin/python"
    modules = [path.relative_to(PACKAGE.parent).with_suffix("").parts for path in PACKAGE.rglob("*.py")]
    names = [".".join(parts).removesuffix(".__init__") for parts in modules if parts[-1] != "__main__"]
    script = f"import importlib\nfor name in {sorted(names)!r}: importlib.import_module(name)"
    done = subprocess.run([python, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    asked = subprocess.run([python, "-m", "gpuwatch", "--source", "sim", "status"], capture_output=True, text=True)
    assert asked.returncode == 0, asked.stderr
