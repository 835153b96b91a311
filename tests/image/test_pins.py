"""What the image is built from is pinned by hash and was tested; the bill of materials lists what is installed."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path

import pytest

TREE = Path(__file__).parents[2]
LOCKS = ("requirements.lock", "requirements-build.lock", "requirements-test.lock")
PROJECT = tomllib.loads((TREE / "pyproject.toml").read_text())


def canonical(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file):
    """Name -> version, and the hashes, of a lock file."""
    entries = re.split(r"\n(?=\S)", (TREE / file).read_text().partition("\n")[2].strip())
    found = [
        (re.match(r"([\w.-]+)==(\S+)", entry), re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry)) for entry in entries
    ]
    return {canonical(match[1]): (match[2], hashes) for match, hashes in found}


@pytest.mark.parametrize("file", LOCKS)
def test_every_package_has_its_hashes(file):
    assert pins(file)
    assert [name for name, (_, hashes) in pins(file).items() if not hashes] == []


def test_the_lock_holds_what_gpuwatch_needs_in_the_versions_that_were_tested():
    locked = {name: version for name, (version, _) in pins("requirements.lock").items()}
    extras = [each for extra in PROJECT["project"]["optional-dependencies"].values() for each in extra]
    needed = {canonical(re.match(r"[\w.-]+", each)[0]) for each in PROJECT["project"]["dependencies"] + extras}
    assert needed - locked.keys() == set()
    lines = (TREE / "tests/constraints/newest.txt").read_text().splitlines()
    tested = {canonical(line.split("==")[0]): line.split("==")[1].split()[0] for line in lines if "==" in line}
    assert locked.items() <= tested.items()
    assert {name: version for name, (version, _) in pins("requirements-test.lock").items()} == tested
    (builder,) = PROJECT["build-system"]["requires"]
    assert canonical(re.match(r"[\w.-]+", builder)[0]) in pins("requirements-build.lock")


def test_the_dockerfile_installs_nothing_else():
    text = (TREE / "Dockerfile").read_text().replace("\\\n", " ")
    (pinned,) = re.findall(r'^ARG PINNED="(.*)"$', text, re.MULTILINE)
    assert {"--require-hashes", "--no-deps"} <= set(pinned.split())
    installs = re.findall(r"pip install ([^&\n]*)", text)
    assert len(installs) == 3
    for each in installs:
        assert each.startswith("${PINNED} -r requirements") or {"--no-deps", "--no-index"} <= set(each.split()), each
    assert "apt-get" not in text


def test_pip_refuses_a_file_that_is_not_the_locked_one(tmp_path):
    """The form of the lock is one that pip checks; without its options it would take any file."""
    wheel = tmp_path / "click-0-py3-none-any.whl"
    wheel.write_bytes(b"PK\x05\x06" + bytes(18))
    version, _ = pins("requirements.lock")["click"]
    wheel = wheel.rename(tmp_path / f"click-{version}-py3-none-any.whl")
    text = (TREE / "requirements.lock").read_text()
    (tmp_path / "lock").write_text(re.search(r"^click==.*?(?=\n\S)", text, re.MULTILINE | re.DOTALL)[0])
    command = ["install", "--require-hashes", "--no-deps", "--no-index", "--find-links", tmp_path, "--dry-run"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *command, "--ignore-installed", "-r", tmp_path / "lock"],
        capture_output=True,
        text=True,
        env={**os.environ, "PIP_CONFIG_FILE": os.devnull, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
    )
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr


@pytest.mark.slow  # quick: the locks themselves, above
def test_the_bill_lists_what_is_installed():
    """Of the environment that runs this test, with the members that the schema requires, and the same each time."""
    place = Path(distribution("click").locate_file(""))
    runs = [
        subprocess.run([sys.executable, TREE / "scripts/sbom", place], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert runs[0].stdout == runs[1].stdout
    bill = json.loads(runs[0].stdout)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    found = {each["purl"]: each for each in bill["components"]}
    assert f"pkg:pypi/click@{distribution('click').version}" in found
    assert all({"type", "name", "version"} <= each.keys() and each["bom-ref"] == purl for purl, each in found.items())
    (ours,) = (each for each in bill["dependencies"] if each["ref"].startswith("pkg:pypi/gpuwatch-agent@"))
    direct = {canonical(re.match(r"[\w.-]+", each)[0]) for each in PROJECT["project"]["dependencies"]}
    assert {reference.split("/")[1].split("@")[0] for reference in ours["dependsOn"]} >= direct
    references = {bill["metadata"]["component"]["bom-ref"], *found}
    assert {each for edge in bill["dependencies"] for each in (edge["ref"], *edge["dependsOn"])} <= references


def test_the_list_of_licenses_knows_each_package_that_is_shipped():
    place = Path(distribution("click").locate_file(""))
    told = subprocess.run([sys.executable, TREE / "scripts/sbom", "--licenses", place], capture_output=True, text=True)
    found = {line.split()[0]: line.split(maxsplit=2)[2] for line in told.stdout.splitlines()}
    shipped = [name for name in pins("requirements.lock") if name in found]
    assert len(shipped) > 30
    assert {name for name in shipped if found[name] == "not declared"} == set()
