"""NVIDIA's other programs on the fake libnvidia-ml: gpu-feature-discovery and `nvidia-ctk cdi generate`.

They run in the node's machine, as both read which rights MIG instances have below /proc/driver.
"""

import json
import os

import pytest

from tests.fakes.libnvml import FakeDriver, FakeMig
from tests.node.parts import NVIDIA, TOOLKIT

CUT = [FakeMig(gi=1, profile="1g.10gb"), FakeMig(gi=2, profile="2g.20gb")]


@pytest.fixture
def two_gpus(node):
    """The second one in MIG mode."""
    with FakeDriver(node.folder / "companions", gpus=2, model="H100") as driver:
        driver.set_mig(1, CUT)
        yield driver


def run(node, driver, *command):
    variables = [f"{key}={value}" for key, value in {**driver.env, "NODE_NAME": "any"}.items()]
    return node.run("env", *variables, *command)


def test_gpu_feature_discovery_labels_gpus_and_instances(node, two_gpus):
    file = node.folder / "features"
    options = ("--oneshot", f"--output-file={file}", "--mig-strategy=mixed", "--fail-on-init-error=true")
    run(node, two_gpus, NVIDIA.get()["gpu-feature-discovery"], *options)
    found = dict(line.removeprefix("nvidia.com/").split("=", 1) for line in file.read_text().splitlines())
    wanted = {"gpu.count": "2", "gpu.family": "hopper", "gpu.memory": "81559", "mig.strategy": "mixed"}
    wanted |= {"mig-1g.10gb.count": "1", "mig-2g.20gb.count": "1", "mig-2g.20gb.slices.gi": "2"}
    wanted |= {"mig-1g.10gb.multiprocessors": "16", "mig-2g.20gb.multiprocessors": "32"}
    assert {key: found.get(key) for key in wanted} == wanted
    assert int(found["mig-2g.20gb.memory"]) <= 81559 // 4


def test_the_container_toolkit_describes_gpus_and_instances_for_cdi(node, two_gpus):
    root = node.folder / "driver-root"
    libraries = root / "usr/lib/x86_64-linux-gnu"
    for folder in (libraries, root / "dev/nvidia-caps"):
        folder.mkdir(parents=True)
    (libraries / "libcuda.so.580.95.05").touch()
    minors = [line.split() for line in node.run("cat", "/proc/driver/nvidia-caps/mig-minors").splitlines()]
    rights = [f"nvidia-caps/nvidia-cap{minor}" for name, minor in minors if name.startswith("gpu1/")]
    for name in ("nvidia0", "nvidia1", "nvidiactl", *rights):
        os.mknod(root / "dev" / name, 0o020666, os.makedev(1, 3))  # only its kind matters
    places = (f"--driver-root={root}", f"--dev-root={root}", "--nvidia-cdi-hook-path=/bin/true")
    said = run(node, two_gpus, TOOLKIT.get()["nvidia-ctk"], "cdi", "generate", "--mode=nvml", "--format=json", *places)
    edits = {each["name"]: each["containerEdits"] for each in json.loads(said)["devices"]}
    nodes = {name: {each["path"] for each in edit["deviceNodes"]} for name, edit in edits.items()}
    assert nodes["0"] == {"/dev/nvidia0"}
    uuid = two_gpus.get(0, "uuid")
    assert nodes[uuid] == nodes["0"]
    own = {f"/dev/nvidia-caps/nvidia-cap{minor}" for name, minor in minors if name in instance_rights(2)}
    assert nodes["1:1"] == {"/dev/nvidia1", *own}, "the second instance, and rights of no other"


def instance_rights(gi):
    return (f"gpu1/gi{gi}/access", f"gpu1/gi{gi}/ci0/access")
