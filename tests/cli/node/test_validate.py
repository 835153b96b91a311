"""`gpuwatch node validate`: which GPUs are tested, what is noted, how it ends; on a fake libcuda."""

from pathlib import Path

import pytest
import yaml
from msgspec.structs import replace

from gpuwatch.agent.repairs import validations
from gpuwatch.storage.store import Store
from tests.cli.commands import ask
from tests.fakes.libcuda import FakeCuda
from tests.model import views

BOOT = "boot-1"


class Place:
    """Two GPUs on this machine, the second in use."""

    def __init__(self, folder: Path, cuda: FakeCuda) -> None:
        idle = replace(views.gpu(0), memory=replace(views.gpu(0).memory, used=0), processes=())
        busy = views.gpu(1, processes=(views.process(4001),))
        self.view = views.view((idle, busy))
        host = replace(self.view.snapshot.host, boot_id=BOOT)
        self.view = replace(self.view, snapshot=replace(self.view.snapshot, host=host))
        self.folder, self.cuda = folder, cuda
        (folder / "proc/sys/kernel/random").mkdir(parents=True)
        (folder / "proc/sys/kernel/random/boot_id").write_text(f"{BOOT}\n")
        self.state = str(folder / "state")
        settings = {"sources": {"proc": str(folder / "proc")}, "state_dir": self.state}
        (folder / "gpuwatch.yaml").write_text(yaml.safe_dump(settings))

    def validate(self, *ids: str):
        before = ("--config", str(self.folder / "gpuwatch.yaml"))
        return ask(
            self.view, *before, "node", "validate", *ids, "--cuda-library", str(self.cuda.library), env=self.cuda.env
        )

    @property
    def noted(self) -> list[tuple[str, bool]]:
        store = Store.open(self.state)
        try:
            return [(each.gpu, each.passed) for each in validations(store)]
        finally:
            store.close()


@pytest.fixture
def cuda(tmp_path: Path):
    with FakeCuda(tmp_path / "driver", [views.uuid(0)]) as fake:
        yield fake


@pytest.fixture
def place(tmp_path: Path, cuda: FakeCuda) -> Place:
    return Place(tmp_path, cuda)


@pytest.mark.slow  # the quick ones: tests/diagnose/test_validation.py, and the two below
def test_a_gpu_that_passes_is_noted(place: Place) -> None:
    result = place.validate("0")
    assert (result.exit_code, result.stdout) == (0, "GPU 0: passed\n"), result.stderr
    assert place.noted == [(views.uuid(0), True)]


def test_a_gpu_that_fails_is_noted_with_its_check(place: Place, cuda: FakeCuda) -> None:
    cuda.error("cuInit", 802)
    result = place.validate("0")
    assert result.exit_code == 4, result.stderr
    assert result.stdout.startswith("GPU 0: failed: X01: GPU 0: cuInit")
    assert place.noted == [(views.uuid(0), False)]


def test_a_gpu_in_use_is_not_tried_and_nothing_is_noted(place: Place) -> None:
    result = place.validate("1")
    assert result.exit_code == 1, result.stderr
    assert "GPU 1: not tried: vector_add: in use by 1 process" in result.stdout
    assert place.noted == []


def test_the_view_of_another_machine_is_refused(place: Place) -> None:
    (place.folder / "proc/sys/kernel/random/boot_id").write_text("boot-2\n")
    result = place.validate()
    assert result.exit_code == 2
    assert "another machine" in result.stderr
    assert place.noted == []
