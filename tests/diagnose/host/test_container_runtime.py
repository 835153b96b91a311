"""What runs containers on a host, and what of NVIDIA's is there for them."""

from pathlib import Path

import pytest

from gpuwatch.diagnose.host.container_runtime import ContainerRuntime, container_runtime
from gpuwatch.diagnose.host.runtime_config import ToolkitConfig

RUNTIMES = "[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.nvidia.options]\nBinaryName = '{}'\n"


def put(root: Path, path: str, content: str = "") -> None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)


def package(root: Path, **versions: str) -> None:
    stanzas = (
        f"Package: {n.replace('_', '-')}\nStatus: install ok installed\nVersion: {v}\n\n" for n, v in versions.items()
    )
    put(root, "/var/lib/dpkg/status", "".join(stanzas))


def test_a_bare_machine(tmp_path: Path) -> None:
    assert container_runtime(tmp_path) == ContainerRuntime()


def test_packages_of_the_host(tmp_path: Path) -> None:
    for name in ("containerd", "podman", "nvidia-ctk", "nvidia-container-runtime"):
        put(tmp_path, f"/usr/bin/{name}")
    package(tmp_path, nvidia_container_toolkit="1.18.1-1")
    found = container_runtime(tmp_path)
    assert found.installed == ("containerd", "podman")
    assert found.toolkit == {"/usr/bin/nvidia-ctk": "1.18.1-1", "/usr/bin/nvidia-container-runtime": "1.18.1-1"}
    assert found.configs == ()


def test_the_operators_copy_shows_no_version_and_has_its_own_settings(tmp_path: Path) -> None:
    folder = "/usr/local/nvidia/toolkit"
    put(tmp_path, f"{folder}/nvidia-container-runtime")
    put(
        tmp_path, f"{folder}/.config/nvidia-container-runtime/config.toml", "[nvidia-container-runtime]\nmode = 'cdi'\n"
    )
    put(tmp_path, "/etc/nvidia-container-runtime/config.toml", "[")
    put(tmp_path, "/etc/containerd/config.toml", RUNTIMES.format(f"{folder}/nvidia-container-runtime"))
    found = container_runtime(tmp_path)
    assert found.toolkit == {f"{folder}/nvidia-container-runtime": ""}
    assert found.toolkit_config == ToolkitConfig(
        path=f"{folder}/.config/nvidia-container-runtime/config.toml", mode="cdi"
    )
    assert found.configs[0].nvidia == {"nvidia": f"{folder}/nvidia-container-runtime"}
    assert found.configs[0].missing == ()


@pytest.mark.parametrize("binary", ["/opt/nvidia-container-runtime", "nvidia-container-runtime"])
def test_a_handler_whose_binary_is_gone(tmp_path: Path, binary: str) -> None:
    put(tmp_path, "/etc/containerd/config.toml", RUNTIMES.format(binary))
    assert container_runtime(tmp_path).configs[0].missing == (binary,)


@pytest.mark.parametrize(
    ("path", "content", "package_name", "version", "cdi"),
    [
        ("/etc/containerd/config.toml", "version = 2\n", "containerd.io", "1.7.27-1", False),
        ("/etc/containerd/config.toml", "version = 2\n", "containerd", "2.0.5-0ubuntu1", True),
        ("/etc/containerd/config.toml", "version = 2\n", "nginx", "2.0", None),
        ("/etc/docker/daemon.json", "{}", "docker-ce", "5:28.3.3-1~ubuntu", True),
        ("/etc/docker/daemon.json", "{}", "docker.io", "27.5.1-0ubuntu3", False),
        ("/etc/docker/daemon.json", '{"features": {"cdi": false}}', "docker.io", "29.0.0", False),
        ("/etc/crio/crio.conf", "", "nginx", "2.0", True),
        ("/etc/containerd/config.toml", "version = 2\n", "containerd", "unknown", None),
    ],
)
def test_whether_cdi_is_on_is_reported_by_the_version(
    tmp_path: Path, path: str, content: str, package_name: str, version: str, cdi: bool | None
) -> None:
    put(tmp_path, path, content)
    package(tmp_path, **{package_name: version})
    (config,) = container_runtime(tmp_path).configs
    assert config.cdi is cdi


def test_every_containerd_of_a_distribution_is_found(tmp_path: Path) -> None:
    paths = ("/etc/containerd/config.toml", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml")
    for path in paths:
        put(tmp_path, path)
    assert tuple(config.path for config in container_runtime(tmp_path).configs) == paths


def test_crio_may_have_a_hook_and_only_drop_ins(tmp_path: Path) -> None:
    put(tmp_path, "/etc/crio/crio.conf.d/10-crio.conf", '[crio.runtime]\ndefault_runtime = "crun"\n')
    put(tmp_path, "/etc/crio/crio.conf.d/.10-crio.conf.swp", "\x00")
    put(tmp_path, "/run/containers/oci/hooks.d/oci-nvidia-hook.json", "{}")
    (config,) = container_runtime(tmp_path).configs
    assert (config.path, config.default, config.error) == ("/etc/crio/crio.conf.d", "crun", None)
    assert config.hook == "/run/containers/oci/hooks.d/oci-nvidia-hook.json"


def test_broken_files_are_reported_and_hide_no_others(tmp_path: Path) -> None:
    put(tmp_path, "/etc/containerd/config.toml", "[")
    put(tmp_path, "/etc/docker/daemon.json", '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}')
    put(tmp_path, "/etc/nvidia-container-runtime/config.toml", "[")
    found = container_runtime(tmp_path)
    assert [(config.kind, config.error is not None) for config in found.configs] == [
        ("containerd", True),
        ("docker", False),
    ]
    assert found.toolkit_config is not None
    assert found.toolkit_config.error


def test_googles_own_way(tmp_path: Path) -> None:
    put(tmp_path, "/home/kubernetes/bin/nvidia/lib64/libcuda.so.1")
    assert container_runtime(tmp_path).gke
