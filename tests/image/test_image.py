"""The Dockerfile builds an image that is as small and as powerless as it says, and whose containers do their work."""

import json
import os
import stat
import subprocess
import sys
import tarfile
import time
import tomllib
from pathlib import Path

import pytest

from deploy import image as archive
from gpuwatch import __version__
from tests.e2e.processes import fetch
from tests.image.base import IMAGE, CannotBuild, alone, build_options, product_image, run
from tests.image.container import configuration, contained, rootfs
from tests.image.test_pins import pins
from tests.ports import free_port
from tests.waiting import BOUND_SECONDS, until

pytestmark = pytest.mark.image

TREE = Path(__file__).parents[2]
NOBODY = 65532
MEGABYTES = 220
"""Unpacked, on a base made here, which is larger than the Dockerfile's own."""


of_the_image = pytest.mark.slow
"""Half a minute of CPU, minutes where there is no base yet; test_the_dockerfile_has_what_the_image_needs reads it."""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """The image, built from this tree, once for all workers of a run."""
    place = tmp_path_factory.getbasetemp()
    place = place.parent if "PYTEST_XDIST_WORKER" in os.environ else place
    with alone(place / "image.lock"):
        if not (place / "image").exists():
            try:
                product_image()
            except CannotBuild as error:
                if os.environ.get("CI"):
                    raise
                pytest.skip(str(error))
            (place / "image").touch()
    return IMAGE


@pytest.fixture(scope="module")
def root(image):
    """The image's files."""
    with rootfs(image) as found:
        yield found


def megabytes(folder):
    """Of all files below a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if not file.is_dir()) / 1e6


def test_the_dockerfile_is_clean():
    assert run(Path(sys.executable).with_name("hadolint"), TREE / "Dockerfile") == ""


def test_the_dockerfile_has_what_the_image_needs():
    """Nobody is its user, the agent its command, and what it copies is in the tree."""
    lines = (TREE / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    said = {word: [line.split()[1:] for line in lines if line.split()[:1] == [word]] for word in ("COPY", "USER")}
    assert said["USER"] == [[f"{NOBODY}:{NOBODY}"]]
    assert lines[-2:] == ['ENTRYPOINT ["gpuwatch"]', 'CMD ["agent"]']
    copied = [file for files in said["COPY"] if not files[0].startswith("--from") for file in files[:-1]]
    assert {"pyproject.toml", "gpuwatch"} <= set(copied)
    assert [file for file in copied if not (TREE / file).exists()] == []
    ignored = (TREE / ".dockerignore").read_text().splitlines() if (TREE / ".dockerignore").exists() else []
    assert not set(copied) & {line.strip().strip("/") for line in ignored}
    named = tomllib.loads((TREE / "pyproject.toml").read_text())["project"]
    assert named["readme"] in copied, "pip builds nothing without it"


@of_the_image
def test_nothing_in_it_changes_its_user(root):
    files = (file for file in root.rglob("*") if file.is_file() and not file.is_symlink())
    assert [file for file in files if file.stat().st_mode & (stat.S_ISUID | stat.S_ISGID)] == []


@of_the_image
def test_it_runs_as_nobody_and_starts_the_agent(image):
    found = configuration(image)
    assert found["User"] == f"{NOBODY}:{NOBODY}"
    assert (found["Entrypoint"], found["Cmd"]) == (["gpuwatch"], ["agent"])
    assert found["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"


@of_the_image
def test_what_is_left_of_the_kubernetes_client_reaches_an_api_server(root):
    """Nothing answers at this one; the request was sent."""
    server = f"http://127.0.0.1:{free_port()}"
    (root / "tmp/kubeconfig").write_text(
        f"{{clusters: [{{name: a, cluster: {{server: '{server}'}}}}], contexts: [{{name: a, context: {{cluster: a}}}}],"
        " current-context: a, apiVersion: v1, kind: Config}"
    )
    command = ["/opt/gpuwatch/bin/gpuwatch", "node", "status", "--node", "gpu-1", "--kubeconfig", "/tmp/kubeconfig"]
    done = subprocess.run(["chroot", root, *command], capture_output=True, text=True, check=False)
    assert f"is {server} the API server, and up?" in done.stderr


@of_the_image
def test_it_has_what_runs_and_nothing_to_build_with(root, capsys):
    (packages,) = (root / "opt/gpuwatch/lib").glob("python3*/site-packages")
    there = {path.name for path in packages.iterdir()}
    assert {"gpuwatch", "pynvml.py", "kubernetes", "grpc"} <= there
    assert not {"pip", "setuptools", "pytest", "mypy"} & there
    assert not (root / "opt/gpuwatch/bin/pip").exists()
    whole, ours = megabytes(root), megabytes(root / "opt/gpuwatch")
    with capsys.disabled():
        print(f"\nimage: {whole:.0f} MB: the system {whole - ours:.0f} MB, gpuwatch and its libraries {ours:.0f} MB")
    assert whole < MEGABYTES
    assert ours < whole / 2, "the larger part is the system's, which nodes share between images"


@of_the_image
def test_its_bill_lists_what_the_lock_file_pins(root):
    bill = json.loads((root / "opt/gpuwatch/sbom.cdx.json").read_text())
    listed = {each["name"]: each["version"] for each in bill["components"]}
    assert {"click", "grpcio", "kubernetes"} <= listed.keys()
    assert listed.items() <= {name: version for name, (version, _) in pins("requirements.lock").items()}.items()


@of_the_image
@pytest.mark.parametrize("folder", ["var/lib/gpuwatch", "run/gpuwatch"])
def test_its_folders_are_writable_for_nobody_and_for_a_root_without_capabilities(root, folder):
    """A volume that Docker makes has the owner and the mode of the image's folder. Were it nobody's, root would trust
    nothing below it, and the container `consents` has to.
    """
    found = (root / folder).stat()
    assert (found.st_uid, found.st_gid) == (0, 0)
    assert stat.S_IMODE(found.st_mode) == 0o1777


@of_the_image
@pytest.mark.parametrize("uid", [NOBODY, 0], ids=["nobody", "root-without-capabilities"])
def test_the_agent_serves_on_a_read_only_root(root, image, tmp_path, uid, capsys):
    port, started = free_port(), time.monotonic()
    arguments = ["--source", "sim", "agent", "--listen", f"127.0.0.1:{port}"]
    with contained(tmp_path / "agent", root, image, arguments, uid) as process:
        until(lambda: fetch(f"http://127.0.0.1:{port}/-/ready"), "the agent is ready")
        taken = time.monotonic() - started
        page = fetch(f"http://127.0.0.1:{port}/metrics")
        process.terminate()
        assert process.wait(BOUND_SECONDS) == 0
    log = (tmp_path / "agent/log").read_text()
    assert f'gpuwatch_build_info{{version="{__version__}"' in page.decode()
    assert "gpuwatch_store_up 1" in page.decode()
    assert "Traceback" not in log
    with capsys.disabled():
        print(f"\nstart to ready in a container, uid {uid}: {taken:.2f} s")


@of_the_image
def test_without_a_driver_it_reports_it(root, image, tmp_path):
    with contained(tmp_path / "bare", root, image, ["--source", "nvml", "status"], NOBODY) as process:
        assert process.wait(BOUND_SECONDS) == 5
    assert "NVML Shared Library Not Found" in (tmp_path / "bare/log").read_text()


@of_the_image
def test_the_remediator_has_its_client(root, image, tmp_path):
    with contained(
        tmp_path / "remediator", root, image, ["remediator", "--once", "--node-name", "n"], NOBODY
    ) as process:
        assert process.wait(BOUND_SECONDS) != 0
    log = (tmp_path / "remediator/log").read_text()
    assert "Traceback" not in log
    assert "ModuleNotFoundError" not in log
    assert "agent" in log


@of_the_image
def test_two_archives_have_the_same_digest(image, tmp_path):
    """As a release makes them."""
    found = []
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (made,) = archive.make(tmp_path / name, 1_700_000_000, ["amd64"], build_options())
        with tarfile.open(made) as tar:
            found.append(json.load(tar.extractfile("index.json"))["manifests"])
    assert found[0][0]["digest"].startswith("sha256:")
    assert found[0] == found[1]
