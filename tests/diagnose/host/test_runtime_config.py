"""Configurations of containerd 1 and 2, CRI-O and Docker are read as their daemons read them, drop-ins included."""

import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.diagnose.host.runtime_config import RuntimeConfig, ToolkitConfig, containerd, crio, docker, toolkit
from gpuwatch.diagnose.toml import MOST_CHARACTERS, toml_document

CONFIG = "/etc/containerd/config.toml"
BINARY = "/usr/bin/nvidia-container-runtime"

VERSION_2 = f"""\
version = 2
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "registry.k8s.io/pause:3.9"
    [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "nvidia"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes]
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
          runtime_type = "io.containerd.runc.v2"
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            BinaryName = "{BINARY}"
            SystemdCgroup = true
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
          runtime_type = "io.containerd.runc.v2"
"""
VERSION_3 = """\
version = 3
imports = ['/etc/containerd/conf.d/*.toml']
[plugins.'io.containerd.cri.v1.runtime']
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = 'io.containerd.runc.v2'
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
      SystemdCgroup = true
"""
DROP_IN = f"""\
version = 3
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = false
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.nvidia.options]
    BinaryName = "{BINARY}"
"""


def put(root: Path, files: Mapping[str, str]) -> Path:
    for path, content in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return root


def test_containerd_1_names_another_plugin_and_has_no_cdi_by_default(tmp_path: Path) -> None:
    assert containerd(put(tmp_path, {CONFIG: VERSION_2}), CONFIG) == RuntimeConfig(
        kind="containerd",
        path=CONFIG,
        files=(CONFIG,),
        runtimes={"nvidia": BINARY, "runc": "io.containerd.runc.v2"},
        default="nvidia",
        systemd_cgroup=True,
    )


def test_containerd_2_has_cdi_by_default(tmp_path: Path) -> None:
    found = containerd(put(tmp_path, {CONFIG: VERSION_3}), CONFIG)
    assert (found.cdi, found.default, found.runtimes) == (True, "runc", {"runc": "io.containerd.runc.v2"})
    assert found.systemd_cgroup is True


def test_imports_overrule_the_file_that_names_them(tmp_path: Path) -> None:
    put(tmp_path, {CONFIG: VERSION_3, "/etc/containerd/conf.d/99-nvidia.toml": DROP_IN})
    put(tmp_path, {"/etc/containerd/conf.d/README": "no TOML"})
    found = containerd(tmp_path, CONFIG)
    assert found.files == (CONFIG, "/etc/containerd/conf.d/99-nvidia.toml")
    assert found.runtimes["nvidia"] == BINARY
    assert (found.cdi, found.systemd_cgroup) == (False, True)


def test_imports_may_be_relative_missing_and_in_a_circle(tmp_path: Path) -> None:
    circle = "imports = ['conf.d/*.toml', '/etc/lost.toml', '../containerd/config.toml']\n"
    put(tmp_path, {CONFIG: circle, "/etc/containerd/conf.d/a.toml": f"imports = ['{CONFIG}']\n{DROP_IN}"})
    found = containerd(tmp_path, CONFIG)
    assert found.error is None
    assert found.runtimes == {"nvidia": BINARY}


def test_imports_without_an_end_list_a_few_folders(tmp_path: Path) -> None:
    put(tmp_path, {f"/etc/containerd/conf.d/{number}": "no TOML" for number in range(500)})
    patterns = "".join(f"'conf.d/x{number}*.toml'," for number in range(10_000))
    put(tmp_path, {CONFIG: f"imports = [{patterns}]"})
    began = time.process_time()
    assert containerd(tmp_path, CONFIG).error is None
    assert time.process_time() - began < 3.0


@pytest.mark.parametrize("joint", [".", " . ", '."a".', ".'b c'."])
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "x = {{ {} = 1 }}"])
def test_a_key_of_thousands_of_parts_costs_nothing(joint: str, form: str) -> None:
    text = form.format(joint.join(["a"] * (MOST_CHARACTERS // 20)))
    began = time.process_time()
    with pytest.raises(ValueError, match="a key of more than 32 parts"):
        toml_document(text)
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize(
    ("content", "message"),
    [("[plugins\n", "config.toml"), ("plugins = 3", "plugins is no table"), ("imports = 'x'", "imports is no list"),
     ("[plugins.'io.containerd.cri.v1.runtime']\nenable_cdi = 'yes'", "bool"), (".".join("a" * 3000) + " = 1", "")],
)  # fmt: skip
def test_a_file_containerd_would_not_start_with_says_why(tmp_path: Path, content: str, message: str) -> None:
    found = containerd(put(tmp_path, {CONFIG: content}), CONFIG)
    assert found.runtimes == {}
    assert message in (found.error or "")


def test_crio_reads_its_folder_in_order(tmp_path: Path) -> None:
    files = {
        "/etc/crio/crio.conf": '[crio.runtime]\ndefault_runtime = "runc"\ncgroup_manager = "cgroupfs"\n',
        "/etc/crio/crio.conf.d/10-crio.conf": "[crio.runtime]\ndefault_runtime = 'crun'\nruntimes = {crun = {}}\n",
        "/etc/crio/crio.conf.d/99-nvidia.conf": '[crio]\n[crio.runtime]\ndefault_runtime = "nvidia"\n'
        f'[crio.runtime.runtimes.nvidia]\nruntime_path = "{BINARY}"\nruntime_type = "oci"\n',
    }
    found = crio(put(tmp_path, files), "/etc/crio/crio.conf", list(files))
    assert (found.default, found.systemd_cgroup) == ("nvidia", False)
    assert found.runtimes == {"crun": "crun", "nvidia": BINARY}


def test_docker(tmp_path: Path) -> None:
    path = "/etc/docker/daemon.json"
    settings = (
        '{"default-runtime": "nvidia", "runtimes": {"nvidia": {"args": [], "path": "nvidia-container-runtime"}},'
        '"exec-opts": ["native.cgroupdriver=systemd"], "features": {"cdi": true}, "log-level": "info"}'
    )
    assert docker(put(tmp_path, {path: settings}), path) == RuntimeConfig(
        kind="docker",
        path=path,
        files=(path,),
        runtimes={"nvidia": "nvidia-container-runtime"},
        default="nvidia",
        cdi=True,
        systemd_cgroup=True,
    )
    assert docker(put(tmp_path, {path: "\n"}), path) == RuntimeConfig(kind="docker", path=path, files=(path,))
    assert path in (docker(put(tmp_path, {path: "{"}), path).error or "")
    assert docker(put(tmp_path, {path: '{"runtimes": []}'}), path).error


def test_the_toolkits_own_file(tmp_path: Path) -> None:
    path = "/etc/nvidia-container-runtime/config.toml"

    def read(content: str) -> ToolkitConfig | None:
        return toolkit(put(tmp_path, {path: content}), path)

    assert toolkit(tmp_path, path) is None
    content = '[nvidia-container-cli]\nno-cgroups = true\n[nvidia-container-runtime]\nmode = "legacy"\n'
    assert read(content) == ToolkitConfig(path=path, mode="legacy", no_cgroups=True)
    assert read("") == read("[nvidia-container-runtime]\nmode = 3\n") == ToolkitConfig(path=path)
    broken = read("[nvidia-container-cli\n")
    assert broken is not None
    assert "line 1" in (broken.error or "")


TOML = st.sampled_from(
    ["version = 3", "[plugins]", "[plugins.cri]", "imports = ['*.toml']", "enable_cdi = true", "[crio.runtime]",
     "runtimes = 1", "[plugins.cri.containerd.runtimes.nvidia]", "options = {BinaryName = 1}",
     "[crio.runtime.runtimes.x]"]
)  # fmt: skip


@given(st.lists(TOML | st.text(max_size=12), max_size=8).map("\n".join))
@example("a = " + "[" * 5000)
def test_any_text_is_read_or_refused_by_all(content: str) -> None:
    content = content.encode(errors="replace").decode()
    with TemporaryDirectory() as folder:
        root = put(Path(folder), {"/etc/x.toml": content})
        for found in (
            containerd(root, "/etc/x.toml"),
            crio(root, "/etc/x.toml", ["/etc/x.toml"]),
            docker(root, "/etc/x.toml"),
        ):
            assert found.error is None or found.runtimes == {}
        settings = toolkit(root, "/etc/x.toml")
        assert settings is not None
        assert settings.error is None or settings.mode is None
