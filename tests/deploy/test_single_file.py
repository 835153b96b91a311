"""gpuwatch in one file runs on a Python without any library, and is the same bytes each time."""

import os
import shutil
import subprocess
import sys

import pytest

from deploy.packages import build, single_file
from deploy.release import python_packages
from gpuwatch import __version__
from tests.e2e.shared import once

AT = 1_700_000_000
pytestmark = pytest.mark.slow  # two minutes; what it packs is held by test_linux_packages.py and test_pins.py


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two of them, which all workers share."""
    return once(tmp_path_factory, "single", files)


def files(place):
    python_packages(place, AT)
    (wheel,) = place.glob("*.whl")
    found = []
    for name in ("first", "second"):
        (place / name).mkdir()
        found += single_file.make(place / name, wheel, AT, ["amd64"])
    return found


@pytest.fixture(params=build.PYTHONS)
def python(request):
    """An interpreter of each version that this machine has, with none of our libraries."""
    name = f"python{request.param}"
    try:
        asked = [name, "-c", "import sys; print(sys.executable)"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"no {name} here")


def test_two_builds_are_the_same_byte_by_byte(made):
    first, second = made
    assert first.read_bytes() == second.read_bytes()
    print(f"{first.stat().st_size / 1e6:.1f} MB")


def test_it_runs_and_starts_its_reader(made, python, tmp_path):
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}

    def output(*command):
        return subprocess.run(
            [python, made[0], *command], capture_output=True, text=True, check=True, env=environment, cwd=tmp_path
        ).stdout

    assert output("version").startswith(f"gpuwatch  {__version__} (gpuwatch-agent; Python 3.")
    assert output("--source", "sim", "status").startswith("NODE ")
    shutil.copy(made[0], tmp_path / "one.pex")
    here = [python, "one.pex", "--source", f"agent:{tmp_path}/nowhere", "status"]
    refused = subprocess.run(here, capture_output=True, text=True, env=environment, cwd=tmp_path).stderr
    assert f"start it with `{os.path.basename(os.path.realpath(python))} ./one.pex agent`" in refused
    assert (tmp_path / ".cache/pex").is_dir()


def test_a_file_beside_it_chooses_no_interpreter(made, python, tmp_path):
    """As in /tmp, where anybody may have written it."""
    other, owned = tmp_path / f"python{sys.version_info[0]}.{sys.version_info[1]}", tmp_path / "owned"
    other.write_text(f'#!/bin/sh\ntouch {owned}\nexec {python} "$@"\n')
    other.chmod(0o755)
    shutil.copy(made[0], tmp_path)
    (tmp_path / ".pexrc").write_text(f"PEX_PYTHON={other}\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [python, tmp_path / made[0].name, "--version"], capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout == f"gpuwatch {__version__}\n", done.stderr
    assert not owned.exists()


def test_it_unpacks_itself_where_it_is_asked_to(made, tmp_path):
    environment = {"PATH": os.environ["PATH"], "HOME": "/proc/none", "PEX_ROOT": str(tmp_path / "here")}
    done = subprocess.run([made[0], "--version"], capture_output=True, text=True, env=environment, check=False)
    assert done.stdout == f"gpuwatch {__version__}\n", done.stderr
    assert (tmp_path / "here").is_dir()
