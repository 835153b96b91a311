"""CDI specifications as nvidia-ctk, the device plugin and the GPU operator write them, and what is none."""

import json
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.host.cdi import CdiSpec, cdi_specs, parse

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
BY_NVIDIA_CTK = f"""\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args:
    - nvidia-cdi-hook
    - create-symlinks
    - --link
    - libcuda.so.1::{LIBRARIES}/libcuda.so
    hookName: createContainer
    path: /usr/bin/nvidia-cdi-hook
  mounts:
  - containerPath: {LIBRARIES}/libcuda.so.570.86.15
    hostPath: {LIBRARIES}/libcuda.so.570.86.15
    options:
    - ro
    - nosuid
    - nodev
    - bind
  - containerPath: {LIBRARIES}/libnvidia-egl-gbm.so.1.1.2
    hostPath: {LIBRARIES}/libnvidia-egl-gbm.so.1.1.2
  - containerPath: /lib/firmware/nvidia/570.86.15/gsp_ga10x.bin
    hostPath: /lib/firmware/nvidia/570.86.15/gsp_ga10x.bin
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
    - path: /dev/dri/card1
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-955ef018-3bd9-5f27-80b3-fa20ee8d19c5
kind: nvidia.com/gpu
"""


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host that has all that the specification names."""
    for path in ("dev/nvidiactl", "dev/nvidia0", "dev/dri/card1", "lib/firmware/nvidia/570.86.15/gsp_ga10x.bin"):
        touch(tmp_path, path)
    for name in ("libcuda.so.570.86.15", "libnvidia-egl-gbm.so.1.1.2"):
        touch(tmp_path, f"{LIBRARIES}/{name}")
    return tmp_path


def touch(root: Path, path: str, content: str = "") -> None:
    target = root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)


def specs(root: Path) -> tuple[CdiSpec, ...]:
    return cdi_specs(root, root / "dev")


def test_a_specification_of_nvidia_ctk(host: Path) -> None:
    touch(host, "etc/cdi/nvidia.yaml", BY_NVIDIA_CTK)
    assert specs(host) == (
        CdiSpec(
            path="/etc/cdi/nvidia.yaml",
            kind="nvidia.com/gpu",
            devices=("0", "GPU-955ef018-3bd9-5f27-80b3-fa20ee8d19c5"),
            nodes=("/dev/nvidiactl", "/dev/nvidia0", "/dev/dri/card1"),
            versions=("570.86.15",),
        ),
    )


def test_what_the_host_lacks_is_missing_and_of_two_drivers_both_are_reported(host: Path) -> None:
    (host / "dev/nvidia0").unlink()
    touch(host, "run/cdi/nvidia.yaml", BY_NVIDIA_CTK.replace("so.570.86.15", "so.550.90.07"))
    (host / "var").mkdir()
    (host / "var/run").symlink_to("/run")
    (found,) = specs(host)
    assert found.path == "/var/run/cdi/nvidia.yaml"
    assert found.missing == ("/dev/nvidia0", f"{LIBRARIES}/libcuda.so.550.90.07")
    assert found.versions == ("550.90.07", "570.86.15")


def test_the_driver_container_provides_device_files_of_its_own_root(host: Path) -> None:
    node = {"path": "/dev/nvidia0", "hostPath": "/run/nvidia/driver/dev/nvidia0"}
    spec = {"cdiVersion": "0.5.0", "kind": "management.nvidia.com/gpu", "containerEdits": {"deviceNodes": [node]}}
    touch(host, "etc/cdi/management.nvidia.com-gpu.json", json.dumps(spec))
    assert specs(host)[0].missing == ("/run/nvidia/driver/dev/nvidia0",)
    touch(host, "run/nvidia/driver/dev/nvidia0")
    assert specs(host)[0].missing == ()


def test_other_vendors_are_left_out_and_broken_files_are_not(host: Path) -> None:
    touch(host, "etc/cdi/amd.json", '{"kind": "amd.com/gpu", "devices": []}')
    touch(host, "etc/cdi/broken.yaml", "kind: [")
    touch(host, "etc/cdi/nvidia.yaml", "kind: [")
    touch(host, "etc/cdi/notes.txt", BY_NVIDIA_CTK)
    (found,) = specs(host)
    assert (found.path, found.kind) == ("/etc/cdi/nvidia.yaml", None)
    assert found.error


@pytest.mark.parametrize(
    "content",
    ["", "null", "[]", "kind: 3", "kind: nvidia.com/gpu\ndevices: {}", "a: &a [*a]", "\x00", "[" * 5000,
     "!!python/object:os.system {}",
     "kind: nvidia.com/gpu\ndevices: [{}]", "kind: nvidia.com/gpu\n\tdevices: []"],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_what_is_no_specification_says_why(content: str) -> None:
    for path in ("/etc/cdi/nvidia.yaml", "/etc/cdi/nvidia.json"):
        found = parse(path, content)
        assert isinstance(found, CdiSpec)
        assert found.error


@given(st.integers(0, len(BY_NVIDIA_CTK)), st.text(max_size=4))
def test_a_damaged_specification_never_raises(at: int, noise: str) -> None:
    damaged = BY_NVIDIA_CTK[:at] + noise
    found = parse("/etc/cdi/nvidia.yaml", damaged)
    assert found.kind is None or isinstance(found.kind, str)


NAMES = st.sampled_from(["kind", "devices", "containerEdits", "name", "mounts"])
LEAVES = st.none() | st.booleans() | st.integers() | st.text()


@given(st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(NAMES, inner)))
def test_any_json_is_read_or_refused(document: object) -> None:
    content = json.dumps(document)
    for path in ("/etc/cdi/nvidia.json", "/etc/cdi/nvidia.yaml"):
        found = parse(path, content)
        assert isinstance(found, CdiSpec) or msgspec.to_builtins(found)["kind"] is not None
