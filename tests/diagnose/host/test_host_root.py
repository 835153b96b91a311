"""Files of a host below another root: its links are followed there, never on this machine."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.host.host_root import exists, listing, text
from gpuwatch.host.tree import place


@pytest.fixture
def root(tmp_path: Path) -> Path:
    host = tmp_path / "host"
    (host / "run/cdi").mkdir(parents=True)
    (host / "run/cdi/nvidia.yaml").write_text("kind: nvidia.com/gpu\n")
    (host / "var").mkdir()
    (tmp_path / "secret").write_text("of this machine")
    return host


@pytest.mark.parametrize("target", ["/run", "../run", "/../../run/", "./../run/cdi/.."])
def test_links_are_followed_inside_the_root(root: Path, target: str) -> None:
    (root / "var/run").symlink_to(target)
    assert place(root, "/var/run/cdi/nvidia.yaml") == root / "run/cdi/nvidia.yaml"
    assert text(root, "/var/run/cdi/nvidia.yaml") == "kind: nvidia.com/gpu\n"
    assert listing(root, "/var/run/cdi", ".yaml", ".json") == ("/var/run/cdi/nvidia.yaml",)


@pytest.mark.parametrize("target", ["../../secret", "../../../../../../secret", "/../secret", "/etc/passwd"])
def test_no_link_leads_out_of_the_root(root: Path, target: str) -> None:
    (root / "var/out").symlink_to(target)
    assert not exists(root, "/var/out")
    with pytest.raises(FileNotFoundError):
        text(root, "/var/out")


def test_links_in_a_circle_lead_nowhere(root: Path) -> None:
    (root / "var/a").symlink_to("b")
    (root / "var/b").symlink_to("a")
    assert place(root, "/var/a/x") is None


def test_what_is_not_there_is_not_there(root: Path) -> None:
    assert listing(root, "/etc/cdi") == ()
    assert not exists(root, "/run/cdi/nvidia.yaml/x")
    (root / "var/broken").symlink_to("gone")
    assert not exists(root, "/var/broken")


def test_bytes_that_are_no_text_are_replaced(root: Path) -> None:
    (root / "var/odd").write_bytes(b"a\xff\n")
    assert text(root, "/var/odd") == "a\ufffd\n"


@given(st.text(alphabet="ab./", max_size=30))
def test_any_path_stays_below_the_root(path: str) -> None:
    root = Path("/proc/self/task")
    found = place(root, path)
    assert found is None or os.path.normpath(found).startswith(str(root))
