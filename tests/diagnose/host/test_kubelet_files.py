"""The kubelet's sockets and checkpoint, with real sockets and a real kubelet protocol."""

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.host.kubelet_files import KubeletFiles, kubelet_files, sealed
from gpuwatch.sim.surroundings.kubelet import Fault, SimKubelet

KUBELET = "var/lib/kubelet"
PLUGINS = f"{KUBELET}/device-plugins"
POD_RESOURCES = f"{KUBELET}/pod-resources/kubelet.sock"


@pytest.fixture
def root() -> Iterator[Path]:
    """Short enough for the path of a socket."""
    with TemporaryDirectory(prefix="gw-") as folder:
        yield Path(folder)


def put(root: Path, path: str, content: str = "") -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(content)


def read(root: Path, *, ask: bool = False) -> KubeletFiles:
    return kubelet_files(root, root / POD_RESOURCES, ask=ask)


def test_a_machine_without_kubelet(root: Path) -> None:
    (root / KUBELET).mkdir(parents=True)
    assert read(root) == read(root, ask=True) == KubeletFiles()


def test_a_dra_driver_that_is_upgraded_without_a_gap_has_the_uid_of_its_pod_in_its_sockets_name(root: Path) -> None:
    put(root, f"{KUBELET}/config.yaml")
    put(root, f"{KUBELET}/plugins_registry/gpu.nvidia.com-0bbe4f10-201f-4cde-ba98-20992cb8c644-reg.sock")
    put(root, f"{KUBELET}/plugins_registry/other.gpu.nvidia.com-reg.sock")
    assert read(root).dra == ("gpu.nvidia.com",)


def test_a_recorded_node(root: Path) -> None:
    for name in ("kubelet.sock", "nvidia-gpu.sock", "nvidia-mig-1g.10gb.sock", "rdma.sock"):
        put(root, f"{PLUGINS}/{name}")
    put(root, f"{PLUGINS}/kubelet_internal_checkpoint", sealed({"nvidia.com/gpu": ["GPU-2", "GPU-1"]}))
    put(root, f"{KUBELET}/plugins_registry/gpu.nvidia.com-reg.sock")
    put(root, f"{KUBELET}/config.yaml", "containerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n")
    put(root, POD_RESOURCES)
    assert read(root) == KubeletFiles(
        present=True,
        folder="/var/lib/kubelet",
        kubelet_socket=True,
        plugins=(f"/{PLUGINS}/nvidia-gpu.sock", f"/{PLUGINS}/nvidia-mig-1g.10gb.sock"),
        dra=("gpu.nvidia.com",),
        checkpoint={"nvidia.com/gpu": ("GPU-1", "GPU-2")},
        intact=True,
        endpoint="unix:///run/containerd/containerd.sock",
    )


def test_flags_overrule_the_kubelets_file(root: Path) -> None:
    put(root, f"{KUBELET}/config.yaml", 'containerRuntimeEndpoint: ""\n')
    put(
        root,
        f"{KUBELET}/kubeadm-flags.env",
        'KUBELET_ARGS="--container-runtime-endpoint=unix:///run/crio/crio.sock -v=2"',
    )
    assert read(root).endpoint == "unix:///run/crio/crio.sock"


def test_a_container_that_sees_only_pod_resources(root: Path) -> None:
    put(root, POD_RESOURCES)
    found = read(root)
    assert (found.present, found.folder, found.plugins, found.checkpoint) == (True, None, None, None)


def test_a_distribution_with_another_folder(root: Path) -> None:
    put(root, "var/lib/k0s/kubelet/device-plugins/nvidia-gpu.sock")
    found = read(root)
    assert (found.folder, found.plugins) == (
        "/var/lib/k0s/kubelet", ("/var/lib/k0s/kubelet/device-plugins/nvidia-gpu.sock",),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "reason"), [(None, None), ("absent", "absent"), ("refused", "unavailable"), ("slow", "deadline")]
)
def test_the_kubelet_is_asked(root: Path, fault: Fault | None, reason: str | None) -> None:
    put(root, f"{KUBELET}/config.yaml")
    kubelet = SimKubelet(root / POD_RESOURCES, delay=4.0)
    kubelet.fail(fault)
    try:
        found = read(root, ask=True)
    finally:
        kubelet.stop()
    assert found.pod_resources_reason == reason
    assert (found.pod_resources is None) == (reason is None)


def test_a_plugin_that_has_ended_leaves_a_socket_nobody_listens_on(root: Path) -> None:
    (root / PLUGINS).mkdir(parents=True)
    with ExitStack() as stack:
        for name in ("nvidia-gpu.sock", "nvidia-mig-1g.10gb.sock"):
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(root / PLUGINS / name))
            if name == "nvidia-gpu.sock":
                listener.listen()
        found = read(root, ask=True)
    assert found.refusing == (f"/{PLUGINS}/nvidia-mig-1g.10gb.sock",)
    assert read(root).refusing == ()


def test_a_checkpoint_that_cannot_be_read_or_understood(root: Path) -> None:
    put(root, f"{PLUGINS}/kubelet_internal_checkpoint", "{")
    found = read(root)
    assert (found.checkpoint, found.intact) == (None, False)
    assert found.checkpoint_error
    os.unlink(root / PLUGINS / "kubelet_internal_checkpoint")
    (root / PLUGINS / "kubelet_internal_checkpoint").mkdir()
    found = read(root)
    assert (found.checkpoint, found.intact) == (None, None)
    assert "directory" in (found.checkpoint_error or "")


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_text_in_its_files_is_read(checkpoint: str, flags: str) -> None:
    with TemporaryDirectory() as folder:
        put(Path(folder), f"{PLUGINS}/kubelet_internal_checkpoint", checkpoint.encode(errors="replace").decode())
        put(Path(folder), f"{KUBELET}/kubeadm-flags.env", flags.encode(errors="replace").decode())
        found = read(Path(folder))
    assert found.checkpoint is None
    assert found.checkpoint_error
