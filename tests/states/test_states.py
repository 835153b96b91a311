"""What each released version kept, this one reads: nothing that it knew of a node is lost by an upgrade."""

import json

import pytest

from gpuwatch import __version__
from tests.states.written import HERE, READ, private, read, write

VERSIONS = sorted(folder.parent.name for folder in HERE.glob(f"*/{READ}"))


def within(old, new):
    """Whether all that `old` says `new` says, too; it may say more, and a list may not be longer."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and within(value, new[key]) for key, value in old.items())
    if isinstance(old, list):
        return isinstance(new, list) and len(old) == len(new) and all(map(within, old, new))
    return old == new


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_version_kept_is_read(version, tmp_path):
    state = private(HERE / version, tmp_path / "state")
    kept = json.loads((state / READ).read_text())
    found = read(state)
    assert [name for name, value in kept.items() if not within(value, found.get(name))] == []


def test_this_version_is_one_of_them():
    """After `make site VERSION=...`: python -m tests.states.written"""
    assert __version__ in VERSIONS


def test_this_version_writes_what_is_in_its_folder(tmp_path):
    """What was added after the release may be more; the next version's folder has it."""
    write(tmp_path / "state")
    found, kept = read(tmp_path / "state"), json.loads((HERE / __version__ / READ).read_text())
    assert found.keys() == kept.keys()
    assert [name for name in kept if not within(kept[name], found[name])] == []


def test_it_notices_a_loss(tmp_path):
    state = private(HERE / __version__, tmp_path / "state")
    (state / "repair.json").unlink()
    kept, found = json.loads((state / READ).read_text()), read(state)
    assert [name for name, value in kept.items() if not within(value, found[name])] == ["repairs"]
