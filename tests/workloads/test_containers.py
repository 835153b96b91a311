"""What Docker, Podman and nerdctl keep of a container gives it a name, wherever the file is safe to read.

The samples are in the corpus of the fuzzer: Docker 20.10.24 and Podman 4.3.1 wrote theirs, nerdctl's is made up as its
source documents it.
"""

import logging
import os
import shutil
from pathlib import Path

import pytest

from gpuwatch.model.workload import Container, Workload
from gpuwatch.sim.surroundings.proctree import ProcTree, SimProcess
from gpuwatch.workloads.containers import FILES, MOST_BYTES, MOST_CHARACTERS, container
from gpuwatch.workloads.procfs import PodLogs, Processes

SAMPLES = Path(__file__).parents[1] / "fuzz/corpus/containers"
DOCKER = "ffc3ab0860a1534917d778a9f06952e0d6fc77df535a704f85dff44dd80e7c50"
PODMAN = "5ffe34a31a81e5fd466c0dc061304130ca341d108df614b35069f6586016196a"
NERDCTL = "c3" * 32
IMAGE = "ghcr.io/example/train:1.2"
OF_DOCKER = Container("llm-train", IMAGE, "lab", "train")


def place(root: Path, sample: str, file: str) -> str:
    """A state folder in which the sample is at `file`."""
    (root / file).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(SAMPLES / sample, root / file)
    return str(root)


def of_docker(root: Path, ident: str = DOCKER) -> Path:
    """Docker's file of a container."""
    return root / FILES[0].format(ident)


@pytest.mark.parametrize(
    ("sample", "file", "ident", "expected"),
    [
        ("docker.json", f"containers/{DOCKER}/config.v2.json", DOCKER, OF_DOCKER),
        ("podman.json", "overlay-containers/containers.json", PODMAN, Container("llm-infer", IMAGE)),
        ("podman.json", "vfs-containers/volatile-containers.json", PODMAN, Container("llm-infer", IMAGE)),
        ("podman.json", "overlay-containers/containers.json", DOCKER, None),
        (
            *("nerdctl.json", f"io.containerd.runtime.v2.task/default/{NERDCTL}/config.json", NERDCTL),
            Container("lab-serve-1", None, "lab", "serve"),
        ),
    ],
)
def test_each_runtime_names_its_containers(
    tmp_path: Path, sample: str, file: str, ident: str, expected: Container | None
) -> None:
    folders = str(tmp_path / "not-there"), place(tmp_path / "state", sample, file)
    assert container(folders, ident) == expected


def test_nothing_but_a_whole_id_becomes_a_path(tmp_path: Path) -> None:
    for ident in ("..", "*", DOCKER[:12], DOCKER.upper(), f"{DOCKER}/../{DOCKER}", f"{DOCKER}\n"):
        place(tmp_path, "docker.json", FILES[0].format("x"))
        assert container((str(tmp_path),), ident) is None


def test_no_link_leads_out_of_the_folder(tmp_path: Path) -> None:
    outside, state = Path(place(tmp_path / "outside", "docker.json", "config.v2.json")), tmp_path / "state"
    of_docker(state).parent.mkdir(parents=True)
    of_docker(state).symlink_to(outside / "config.v2.json")
    assert container((str(state),), DOCKER) is None
    shutil.rmtree(of_docker(state).parent)
    of_docker(state).parent.symlink_to(outside)
    assert container((str(state),), DOCKER) is None


def test_a_pipe_and_a_file_that_is_too_long_are_refused(tmp_path: Path) -> None:
    file = of_docker(Path(place(tmp_path, "docker.json", FILES[0].format(DOCKER))))
    text = file.read_bytes()
    file.write_bytes(text + b" " * (MOST_BYTES - len(text)))
    assert container((str(tmp_path),), DOCKER) == OF_DOCKER
    file.write_bytes(text + b" " * (MOST_BYTES - len(text) + 1))
    assert container((str(tmp_path),), DOCKER) is None
    file.unlink()
    os.mkfifo(file)
    assert container((str(tmp_path),), DOCKER) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            '{"Name":"/a","Config":{"Image":"u:p@reg/a:1@sha256:' + "0" * 64 + '","Labels":null}}',
            Container("a", "reg/a:1"),
        ),
        ('{"Name":"/' + "x" * 1000 + '"}', Container("x" * MOST_CHARACTERS)),
        ('{"Name":"/a","Config":{"Labels":{"com.docker.compose.project":"p"}}}', Container("a", None, "p")),
        ('{"Name":"","Config":{"Image":"a"}}', None),
        ('{"Name":7}', None),
        ("[]", None),
        ('[{"id":"' + DOCKER + '","names":null}]', None),
        ('[{"id":"' + DOCKER + '","names":["a"],"metadata":"no JSON"}]', None),
        ("[" * 100_000, None),
        ("", None),
    ],
)
def test_it_is_read_as_far_as_it_goes(tmp_path: Path, text: str, expected: Container | None) -> None:
    of_docker(tmp_path).parent.mkdir(parents=True)
    of_docker(tmp_path).write_text(text)
    assert container((str(tmp_path),), DOCKER) == expected


def test_the_next_folder_is_asked_where_one_has_garbage(tmp_path: Path) -> None:
    (garbage := of_docker(tmp_path / "garbage")).parent.mkdir(parents=True)
    garbage.write_text("{")
    good = place(tmp_path / "good", "docker.json", FILES[0].format(DOCKER))
    assert container((str(tmp_path / "garbage"), good), DOCKER) == OF_DOCKER


def test_that_nothing_names_a_container_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        for digit in "abc":
            assert container((str(tmp_path),), digit * 64) is None
    (line,) = [record.getMessage() for record in caplog.records if str(tmp_path) in record.getMessage()]
    assert line.startswith("a container outside pods goes by its id")


def reader(root: Path) -> tuple[ProcTree, Processes]:
    tree = ProcTree(root)
    return tree, Processes(tree.proc, PodLogs(tree.logs), runtimes=(str(root / "docker"),))


def test_a_container_is_read_once_and_forgotten_with_its_last_process(tmp_path: Path) -> None:
    one, other = (SimProcess(pid=pid, container=OF_DOCKER, layout="docker") for pid in (7, 8))
    tree, processes = reader(tmp_path)
    file = of_docker(
        Path(place(tmp_path / "docker", "docker.json", FILES[0].format(one.container_id))), one.container_id
    )
    tree.show([one])
    assert processes.owners([7])[7].container == OF_DOCKER
    file.write_text(file.read_text().replace("llm-train", "renamed"))
    tree.show([one, other])
    assert {owner.container for owner in processes.owners([7, 8]).values()} == {OF_DOCKER}
    tree.show([])
    assert processes.owners([7, 8]) == {}
    tree.show([one])
    assert processes.owners([7])[7].container == Container("renamed", IMAGE, "lab", "train")


def test_the_container_of_a_pod_is_the_pods(tmp_path: Path) -> None:
    """Docker below a kubelet (cri-dockerd) keeps a file of it, too."""
    pod = Workload(namespace="ml", pod="train-0", container="main", pod_uid="0f2b7c1e-8d2b-4f7e-9a55-5a2f0e6f7c11")
    process = SimProcess(pid=7, workload=pod)
    tree, processes = reader(tmp_path)
    place(tmp_path / "docker", "docker.json", FILES[0].format(process.container_id))
    tree.show([process])
    owner = processes.owners([7])[7]
    assert (owner.workload, owner.container) == (pod, None)
