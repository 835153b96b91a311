"""Packages install, work, are upgraded and leave nothing on a Debian made here; a tree gives the same bytes twice."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from deploy.packages import build
from deploy.release import python_packages
from gpuwatch import __version__
from tests.e2e.shared import once
from tests.gobuild import cache, find_go
from tests.image.base import CannotBuild, base_image
from tests.image.container import rootfs

AT = 1_700_000_000
HERE = build.HERE
SCRIPTS = ("launcher", "compile", "postinstall", "preremove", "postremove")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_one_and_can_be_run(name):
    assert os.access(HERE / name, os.X_OK)
    subprocess.run(["sh", "-n", HERE / name], check=True)


def test_launcher_and_compiler_know_every_python_that_has_libraries():
    newest_first = " ".join(reversed(build.PYTHONS))
    for name in ("launcher", "compile"):
        assert f"for version in {newest_first}; do" in (HERE / name).read_text()
    said = (HERE / "nfpm.yaml").read_text()
    for python in build.PYTHONS:
        assert said.count(f"python{python}") == 3, "depended upon by both, and its trigger"


def test_units_are_ours_and_none_needs_the_kubernetes_client():
    assert all((build.SYSTEMD / name).is_file() for name in build.UNITS)
    left_out = {file.name for file in build.SYSTEMD.glob("*.service")} - set(build.UNITS)
    assert left_out == {"gpuwatch-remediator.service", "gpuwatch-tuner-consents.service"}


@pytest.mark.parametrize("said", ["upgrade", "configure", "abort-upgrade"])
def test_settings_and_state_stay_unless_purged(said, tmp_path):
    """The script in a root of its own, where no systemd runs."""
    for place in ("var/lib/gpuwatch", "etc/gpuwatch"):
        (tmp_path / place).mkdir(parents=True)
    script = (HERE / "postremove").read_text().replace("/var/", f"{tmp_path}/var/").replace("/etc/", f"{tmp_path}/etc/")
    script = script.replace("/run/systemd/system", f"{tmp_path}/none")
    subprocess.run(["sh", "-c", script, "postrm", said], check=True)
    assert (tmp_path / "etc/gpuwatch").is_dir()
    subprocess.run(["sh", "-c", script, "postrm", "purge"], check=True)
    assert not (tmp_path / "etc/gpuwatch").exists()
    assert not (tmp_path / "var/lib/gpuwatch").exists()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Form -> two builds of this version, one of them under another umask, and one of a newer version. They take
    minutes, so all workers share them.
    """
    return once(tmp_path_factory, "packages", packages)


def packages(place):
    go = find_go(cache() / "packages-go", "1.25")
    found = {"deb": [], "rpm": []}
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{Path(go).parent}:{os.environ['PATH']}")
        python_packages(place, AT)
        (wheel,) = place.glob("*.whl")
        for name, umask in (("first", 0o022), ("second", 0o077)):
            old = os.umask(umask)
            try:
                (place / name).mkdir()
                tree = build.lay_out(place / name, wheel, "x86_64")
            finally:
                os.umask(old)
            for form, files in found.items():
                files.append(build.pack(place / name, tree, "amd64", form, AT))
        patched.setattr(build, "__version__", "99.0.0")
        for form, files in found.items():
            files.append(build.pack(place, tree, "amd64", form, AT))
    return found


@pytest.fixture(scope="module")
def debian():
    """The root of a machine with Python and nothing of gpuwatch."""
    try:
        base = base_image()
    except CannotBuild as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with rootfs(base) as root:
        yield root


def within(root, *command):
    """What a command says there."""
    done = subprocess.run(["chroot", root, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr or done.stdout
    return done.stdout


@pytest.mark.slow  # two minutes; the scripts and what they name are held above
@pytest.mark.image
@pytest.mark.parametrize("form", ["deb", "rpm"])
def test_two_builds_are_the_same_byte_by_byte(made, form):
    first, second, _ = made[form]
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
@pytest.mark.image
def test_it_is_installed_upgraded_removed_and_purged(made, debian, capsys):
    first, _, newer = made["deb"]
    for package in (first, newer):
        shutil.copy(package, debian / "root")
    before = {str(path) for path in debian.rglob("*")}
    log = [within(debian, "dpkg", "--install", f"/root/{first.name}")]
    assert within(debian, "gpuwatch", "version").startswith(f"gpuwatch  {__version__} (gpuwatch-agent; Python 3.")
    assert within(debian, "gpuwatch", "--source", "sim", "status").startswith("NODE ")
    assert (debian / "usr/lib/systemd/system/gpuwatch-agent.service").read_text().count("/usr/bin/gpuwatch ") == 1
    assert list((debian / "usr/lib/gpuwatch/common/gpuwatch").glob("__pycache__/*.pyc")), "the units cannot write it"
    settings = debian / "etc/gpuwatch/gpuwatch.yaml"
    settings.write_text("agent: {interval: 2}\n")
    (debian / "var/lib/gpuwatch").mkdir()
    log.append(within(debian, "dpkg", "--install", f"/root/{newer.name}"))
    assert settings.read_text() == "agent: {interval: 2}\n"
    log.append(within(debian, "dpkg", "--remove", "gpuwatch-agent"))
    assert settings.exists()
    assert not (debian / "usr/lib/gpuwatch").exists()
    log.append(within(debian, "dpkg", "--purge", "gpuwatch-agent"))
    left = {str(path) for path in debian.rglob("*")} - before
    assert [path for path in left if "gpuwatch" in path] == []
    with capsys.disabled():
        print("\n" + "".join(log))
        print(f"{first.stat().st_size / 1e6:.1f} MB packed")


@pytest.mark.slow
@pytest.mark.image
def test_its_agent_serves(made, debian):
    """Where no Python is, it says so."""
    shutil.copy(made["deb"][0], debian / "root")
    within(debian, "dpkg", "--install", f"/root/{made['deb'][0].name}")
    assert '"healthy"' in within(debian, "gpuwatch", "--source", "sim", "status", "-o", "json")
    with tempfile.TemporaryDirectory(dir=debian / "usr/bin") as aside:
        pythons = [file for file in (debian / "usr/bin").glob("python3*")]
        for file in pythons:
            file.rename(Path(aside) / file.name)
        done = subprocess.run(["chroot", debian, "gpuwatch", "version"], capture_output=True, text=True, check=False)
        for file in pythons:
            (Path(aside) / file.name).rename(file)
    assert done.returncode == 5
    assert "install one" in done.stderr
    within(debian, "dpkg", "--purge", "gpuwatch-agent")


@pytest.mark.slow
@pytest.mark.image
@pytest.mark.skipif(not shutil.which("rpm"), reason="no rpm here; apt-get install rpm")
def test_the_rpm_is_installed_upgraded_and_erased(made, debian):
    """By rpm itself; --nodeps, as Python is no .rpm there."""
    first, _, newer = made["rpm"]
    before = {str(path) for path in debian.rglob("*")}

    def rpm(*options):
        subprocess.run(["rpm", f"--root={debian}", *options], check=True, capture_output=True, text=True)

    rpm("--install", "--nodeps", first)
    assert within(debian, "gpuwatch", "--source", "sim", "status").startswith("NODE ")
    settings = debian / "etc/gpuwatch/gpuwatch.yaml"
    settings.write_text("agent: {interval: 2}\n")
    rpm("--upgrade", "--nodeps", newer)
    assert settings.read_text() == "agent: {interval: 2}\n"
    assert list((debian / "usr/lib/gpuwatch/common/gpuwatch").glob("__pycache__/*.pyc")), "the units cannot write it"
    rpm("--erase", "gpuwatch-agent")
    left = {path for path in {str(path) for path in debian.rglob("*")} - before if "gpuwatch" in path}
    assert left == {str(settings.parent), f"{settings}.rpmsave"}, "changed settings are kept aside"
