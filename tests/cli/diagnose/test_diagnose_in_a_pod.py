"""`gpuwatch diagnose` in a container that sees a part of its host: what is not read is no fault."""

import shutil

import pytest
from msgspec.structs import replace

from gpuwatch.agent.client import AgentClient
from gpuwatch.agent.one_shot import OneShotCollector
from gpuwatch.cli.console.terminal import UNICODE
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.diagnose.document import exit_code
from gpuwatch.cli.diagnose.screen import SECTIONS, Screen
from gpuwatch.config import Config
from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.engine import diagnose
from gpuwatch.diagnose.gathering.gather import DiagnosisTarget, gather
from gpuwatch.diagnose.gathering.probe import NEED_ROOT
from gpuwatch.diagnose.model import CheckStatus
from gpuwatch.diagnose.places import HIDDEN, Places
from gpuwatch.sim.world import World
from tests.cli.commands import run, serving

SECONDS = 60.0
PATIENT = ("--budget", f"{SECONDS:.0f}s")
IN_A_POD = {"KUBERNETES_SERVICE_HOST": "192.0.2.1"}
GIVEN = {"nvidiactl", *(f"nvidia{number}" for number in range(8))}
"""What NVIDIA's runtime puts into a container with NVIDIA_DRIVER_CAPABILITIES=utility."""


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A simulated node that runs, and its View."""
    place = tmp_path_factory.mktemp("node")
    with World("healthy", place) as world:
        config = replace(Config(), sources=world.sources, state_dir=str(place / "state"))
        with OneShotCollector(config, world.backend) as collector:
            collector.wait(2, SECONDS)
            yield world, collector.view()


@pytest.fixture
def container(node, tmp_path):
    """Places of a container that has what NVIDIA's runtime gives it, and of its host /proc, /sys and /dev alone."""
    world, _ = node
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
    places = Places.of("/", sources, str(tmp_path / "state"))
    return replace(places, root=str(tmp_path / "root"), hidden=True)  # `/` of this machine may have a kubelet


@pytest.fixture
def found(node, container, tmp_path):
    """A diagnosis in the container, beside an agent, and what it rests on."""
    _, view = node
    with serving(view) as socket:
        agent, nowhere = AgentClient(str(socket)), str(tmp_path / "kubeconfig")
        ground = DiagnosisTarget(container, Config(), agent=agent, kubeconfig=nowhere)
        facts = gather(ground, level="quick", seconds=SECONDS)
    return diagnose(CheckContext(facts), CHECKS, level="quick"), facts


def test_nothing_fails_because_it_was_not_read(found):
    diagnosis, facts = found
    wrong = [(r.id, r.message) for r in diagnosis.results if r.result in (CheckStatus.WARN, CheckStatus.FAIL)]
    assert wrong == []
    assert exit_code(diagnosis, facts) == 0
    assert facts.unread.keys() >= NEED_ROOT


def test_it_says_how_to_see_the_rest(found):
    lines = Screen(Words(UNICODE, 0.0), 4000, wide=False).lines(*found)
    told = next(line.plain for line in lines if HIDDEN in line.plain)
    assert all(SECTIONS[section] in told for section in NEED_ROOT)


def test_without_what_is_asked_for_it_is_a_question_of_rights(node):
    """The command, where Kubernetes tells that it is in a container."""
    with serving(node[1]) as socket:
        words = ("--source", f"agent:{socket}", "diagnose", "--level", "quick", "--stage", "runtime", *PATIENT)
        assert run(*words, env=IN_A_POD).exit_code == 6
