"""`gpuwatch diagnose` in a container that sees a part of its host: what is not seen is no fault."""

import json
import shutil

import msgspec
import pytest
import yaml
from msgspec.structs import replace

from gpuwatch.cli.diagnose_sections import SECTIONS
from gpuwatch.config import Config
from gpuwatch.diagnose.gathering.sections import NEED_ROOT
from gpuwatch.roles.look import look
from gpuwatch.sim.world import World
from tests.cli.conftest import run, serving

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "192.0.2.1"}
GIVEN = {"nvidiactl", *(f"nvidia{number}" for number in range(8))}
"""What NVIDIA's runtime puts into a container with NVIDIA_DRIVER_CAPABILITIES=utility."""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A simulated node that runs, and its View."""
    place = tmp_path_factory.mktemp("node")
    with World("healthy", place) as world:
        config = replace(Config(), sources=world.sources, state_dir=str(place / "state"))
        yield world, look(config, world.backend, samples=2)


@pytest.fixture
def pod(node, tmp_path):
    """Runs `gpuwatch diagnose` as in a pod: `pod("-o", "json")`."""
    world, view = node
    for seen in ("proc", "dev"):
        shutil.copytree(world.directory / seen, tmp_path / seen, symlinks=True)
    for hidden in [path for path in (tmp_path / "proc").iterdir() if path.name.isdigit()]:
        shutil.rmtree(hidden)
    own = tmp_path / "proc/1"
    own.mkdir()
    (own / "comm").write_text("gpuwatch\n")
    (own / "stat").write_text("1 (gpuwatch) S 0 1 1" + " 0" * 15 + " 900 0 0\n")
    for table in (tmp_path / "proc/net").glob("tcp*"):
        table.write_text(table.read_text().splitlines()[0] + "\n")
    for hidden in [path for path in (tmp_path / "dev").iterdir() if path.name not in GIVEN]:
        shutil.rmtree(hidden) if hidden.is_dir() else hidden.unlink()
    sources = replace(world.sources, proc=str(tmp_path / "proc"), dev=str(tmp_path / "dev"))
    settings = tmp_path / "gpuwatch.yaml"
    settings.write_text(yaml.safe_dump({"sources": msgspec.to_builtins(sources), "state_dir": str(tmp_path / "state")}))
    with serving(view) as socket:
        source = ("--config", str(settings), "--source", f"agent:{socket}")
        yield lambda *args: run(*source, "diagnose", "--level", "quick", *args, env=IN_A_POD)


def test_nothing_fails_because_it_is_not_seen(pod):
    result = pod("-o", "json")
    document = json.loads(result.stdout)
    wrong = [(item["id"], item["message"]) for item in document["items"] if item["result"] in ("warn", "fail")]
    assert wrong == []
    assert result.exit_code == 0
    assert document["unread"].keys() >= NEED_ROOT


def test_it_says_how_to_see_the_rest(pod):
    told = " ".join(pod().stdout.split())
    assert f"not seen: {', '.join(SECTIONS[section] for section in sorted(NEED_ROOT))}: " in told
    assert "mount its / and name it with --root" in told


def test_without_what_is_asked_for_it_is_a_question_of_rights(pod):
    assert pod("--stage", "runtime").exit_code == 6
