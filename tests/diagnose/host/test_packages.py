"""Versions come from dpkg's own list, of packages that are installed."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from gpuwatch.diagnose.host.host_root import package_versions

STATUS = """\
Package: nvidia-container-toolkit
Status: install ok installed
Priority: optional
Depends: nvidia-container-toolkit-base (= 1.18.1-1), libnvidia-container-tools (= 1.18.1-1)
Description: NVIDIA Container toolkit
 Version: of nothing
Version: 1.18.1-1

Package: containerd.io
Status: deinstall ok config-files
Version: 1.7.27-1

Package: docker-ce
Status: install ok installed
Version: 5:28.3.3-1~ubuntu.24.04~noble
"""
NAMES = r"nvidia-container-toolkit|containerd\.io|docker-ce|cri-o"


def put(root: Path, content: str) -> Path:
    (root / "var/lib/dpkg").mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").write_text(content)
    return root


def test_only_what_is_installed_and_asked_for(tmp_path: Path) -> None:
    put(tmp_path, STATUS)
    assert package_versions(tmp_path, NAMES) == {
        "nvidia-container-toolkit": "1.18.1-1",
        "docker-ce": "5:28.3.3-1~ubuntu.24.04~noble",
    }
    assert package_versions(tmp_path, "cri-o") == {}


def test_a_host_without_dpkg(tmp_path: Path) -> None:
    assert package_versions(tmp_path, NAMES) == {}
    (tmp_path / "var/lib/dpkg/status").mkdir(parents=True)
    assert package_versions(tmp_path, NAMES) == {}


@st.composite
def lists(draw: DrawFn) -> str:
    lines = st.sampled_from(
        ["Package: cri-o", "Status: install ok installed", "Version: 1.34.0-1", "", "Version", ": "]
    )
    return "\n".join(draw(st.lists(lines | st.text(max_size=8), max_size=12)))


@given(lists())
def test_any_text_is_read(tmp_path_factory: object, content: str) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        found = package_versions(put(Path(folder), content.encode(errors="replace").decode()), "cri-o")
    assert set(found) <= {"cri-o"}
