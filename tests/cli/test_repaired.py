"""`gpuwatch repaired`: who is meant, what is noted, and what is said when it cannot be."""

from pathlib import Path

import pytest

from gpuwatch.agent.repairs import repaired_at
from gpuwatch.storage.store import Store
from tests.cli.commands import ask
from tests.model import views


def noted(directory: Path) -> dict[str, float]:
    store = Store.open(directory)
    try:
        return repaired_at(store)
    finally:
        store.close()


def test_gpus_and_the_node_are_noted(tmp_path: Path) -> None:
    view = views.failing()
    result = ask(view, "repaired", "2", "node", "--state-dir", str(tmp_path / "state"))
    assert result.exit_code == 0, result.stderr
    third = next(status.identity.uuid for status in view.snapshot.statuses if status.identity.index == 2)
    assert noted(tmp_path / "state").keys() == {third, "node"}
    assert "Noted" in result.stdout


@pytest.mark.parametrize("who", [("77",), ()])
def test_nobody_goes_by_that_name(tmp_path: Path, who: tuple[str, ...]) -> None:
    assert ask(views.failing(), "repaired", *who, "--state-dir", str(tmp_path / "state")).exit_code == 2
    assert not (tmp_path / "state").exists()


def test_a_place_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = ask(views.failing(), "repaired", "2", "--state-dir", str(tmp_path / "file" / "state"))
    assert result.exit_code == 6
    assert "was not noted" in result.stderr
