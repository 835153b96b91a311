"""`make test` shows the proofs of what has changed, and a fixed share where nobody knows what has."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.harms.changes import EVERY, MOST, changed_files, worth_showing
from tests.harms.table import HARMS

PROOFS = [proof for harm in HARMS for proof in harm.proofs]
JUDGE = "gpuwatch/health/judge.py"


def test_nothing_is_shown_where_nothing_of_it_has_changed() -> None:
    assert worth_showing(PROOFS, frozenset({"README.md", "gpuwatch/cli/main.py"})) == []


def test_a_changed_guard_shows_its_proofs_and_no_others() -> None:
    shown = worth_showing(PROOFS, frozenset({JUDGE}))
    assert shown
    assert shown == [proof for proof in PROOFS if proof.patch.file == JUDGE]


def test_a_changed_test_shows_what_it_proves() -> None:
    path = "tests/health/test_checks.py"
    shown = worth_showing(PROOFS, frozenset({path}))
    assert shown
    assert shown == [proof for proof in PROOFS if proof.test.startswith(f"{path}::")]


def test_a_change_of_everything_shows_a_share_from_all_over() -> None:
    shown = worth_showing(PROOFS, frozenset(proof.patch.file for proof in PROOFS))
    assert MOST / 2 < len(shown) <= MOST
    assert shown[0] == PROOFS[0]
    assert PROOFS.index(shown[-1]) > len(PROOFS) * 0.9


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


def commit(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / name).write_text(text)
    git(folder, "add", ".")
    git(folder, "commit", "-m", "a change")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name in ("GPUWATCH_BASE", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):  # a hook of git sets them
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    git(tmp_path, "init", "-b", "main")
    commit(tmp_path, first="1", second="1", third="1")
    return tmp_path


def test_without_git_or_a_base_a_fixed_share_is_shown(
    repository: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert changed_files(repository) is None  # its only commit has none before it
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(elsewhere.parent))
    assert changed_files(elsewhere) is None
    monkeypatch.setenv("PATH", "")
    assert changed_files(repository) is None
    monkeypatch.setattr("tests.harms.changes.changed_files", lambda: None)
    assert worth_showing(PROOFS) == PROOFS[::EVERY]


def test_changed_is_what_differs_from_the_commit_before_committed_or_not(repository: Path) -> None:
    commit(repository, second="2")
    (repository / "third").write_text("2")
    (repository / "fourth").write_text("new")
    assert changed_files(repository) == {"second", "third", "fourth"}


def test_on_a_branch_changed_is_what_differs_from_where_it_left_main(repository: Path) -> None:
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    commit(repository, first="2")
    commit(repository, second="2")
    assert changed_files(repository) == {"first", "second"}


def test_a_base_that_is_named_comes_first(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit(repository, first="2")
    commit(repository, second="2")
    monkeypatch.setenv("GPUWATCH_BASE", "HEAD~2")
    assert changed_files(repository) == {"first", "second"}
    monkeypatch.setenv("GPUWATCH_BASE", "HEAD")
    assert changed_files(repository) == frozenset()
