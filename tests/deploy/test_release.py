"""What is released is the same twice, complete, and works from its files alone."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

from deploy import release
from deploy.audit import summary
from gpuwatch import __version__
from tests.deploy.charts import run

AT = 1_700_000_000


@pytest.fixture
def made(tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(AT))
    return tmp_path / "dist"


def test_an_archive_depends_on_contents_only(tmp_path):
    """Neither on times, owners and umask, nor on the order in which files were found."""
    packed = []
    for place, stamp, mode in (("a", 1, 0o644), ("b", 2, 0o600)):
        files = {name: tmp_path / place / name for name in ("x", "y")}
        (tmp_path / place).mkdir()
        for name, file in files.items():
            file.write_text(name)
            file.chmod(mode)
            os.utime(file, (stamp, stamp))
        order = sorted(files, reverse=place == "b")
        packed.append(release.archive({name: files[name] for name in order}, AT))
    assert packed[0] == packed[1]


def test_archives_hold_what_a_site_needs_and_no_code():
    found = dict(release.archives(AT))
    assert {name.rpartition("-")[0] for name in found} == {*release.ARCHIVES, "gpuwatch"}
    for name, contents in found.items():
        with tarfile.open(fileobj=io.BytesIO(contents)) as tar:
            names, times = tar.getnames(), {member.mtime for member in tar}
        assert times == {AT}
        assert names, name
        assert [each for each in names if each.endswith((".py", ".pyc"))] == []


def test_the_chart_of_a_release_is_the_chart_of_the_tree(tmp_path):
    package = tmp_path / "chart.tgz"
    package.write_bytes(dict(release.archives(AT))[f"gpuwatch-{__version__}.tgz"])
    from_file, from_tree = (run("template", "gpuwatch", place) for place in (package, release.TREE / release.CHART))
    assert from_file.code == 0
    assert from_file.out == from_tree.out


CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-23\n\n- New.\n\n## [1.1.0] - 2026-01-01\n\n- Old.\n"


def test_the_notes_of_a_release_are_its_section_of_the_changelog():
    assert release.section(CHANGELOG, "1.2.0") == "- New.\n"
    assert release.section(CHANGELOG, "1.1.0") == "- Old.\n"
    for version in ("1.3.0", "1.2", "1x1x0"):
        with pytest.raises(release.NotReady, match=f"has no section of {version}"):
            release.section(CHANGELOG, version)


def test_a_release_of_another_version_is_none(tmp_path):
    with pytest.raises(release.NotReady, match=r"make site VERSION=99\.0\.0"):
        release.make(tmp_path / "dist", "99.0.0")
    assert not (tmp_path / "dist").exists()


@pytest.mark.slow
def test_two_builds_are_the_same_byte_by_byte(made, tmp_path):
    """test_an_archive_depends_on_contents_only holds it for the archives, test_linux_packages.py for .deb and .rpm."""
    release.make(made, architectures=())
    old = os.umask(0o077)
    try:
        release.make(tmp_path / "again", architectures=())
    finally:
        os.umask(old)
    assert {file.name: file.read_bytes() for file in made.iterdir()} == {
        file.name: file.read_bytes() for file in (tmp_path / "again").iterdir()
    }
    sums = (line.split() for line in (made / release.SUMS).read_text().splitlines())
    assert all(hashlib.sha256((made / name).read_bytes()).hexdigest() == digest for digest, name in sums)
    (wheel,), (source,) = made.glob("*.whl"), made.glob("gpuwatch_agent-*.tar.gz")
    names = zipfile.ZipFile(wheel).namelist()
    assert "gpuwatch/runbooks/GpuFellOffBus.md" in names
    assert [name for name in names if name.startswith("tests") or name.endswith((".c", ".h", ".so"))] == []
    unpacked = tmp_path / "source"
    shutil.unpack_archive(source, unpacked)
    (tree,) = unpacked.iterdir()
    built = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path / "third"]
    subprocess.run(built, cwd=tree, check=True, capture_output=True)
    assert next((tmp_path / "third").glob("*.whl")).read_bytes() == wheel.read_bytes(), "the sdist lacks something"


def test_an_audit_counts_what_it_could_not_find():
    """The rows are pip-audit's."""
    safe = {"name": "click", "version": "8.5.1", "vulns": []}
    skipped = {"name": "rich", "skip_reason": "Dependency not found on PyPI and could not be audited: rich (15.0.0)"}
    holed = {"name": "yaml", "version": "5.3", "vulns": [{"id": "PYSEC-1", "fix_versions": ["5.4"]}]}
    assert summary([safe]) == (["1 packages looked up, 0 known vulnerabilities"], False)
    lines, vulnerable = summary([safe, skipped, holed])
    assert vulnerable
    assert lines[0] == "2 packages looked up, 1 known vulnerabilities"
    assert lines[1] == "yaml 5.3: PYSEC-1, mended in 5.4"
    assert lines[2].startswith("NOT looked up: 1 packages; rich: Dependency not found")
