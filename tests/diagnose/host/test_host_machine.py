"""The simulated host's kernel, modules, libraries and device files follow its driver."""

from gpuwatch.diagnose.host.driver_files import device_nodes, driver_roots
from gpuwatch.diagnose.host.kernel_modules import kernel
from gpuwatch.diagnose.host.kernel_text import kernel_text
from gpuwatch.host.machine import process_limits
from gpuwatch.host.pci import examined_gpus
from gpuwatch.sim.host.machine import capabilities, machine
from gpuwatch.sim.node.node import SimNode
from gpuwatch.sim.surroundings.pcitree import PciTree
from gpuwatch.sim.world import SimHostTree, World
from tests.sim.node.nodes import scenario
from tests.waiting import until


def shown(root, **node):
    """A node's files, and the node."""
    made = SimNode(scenario(**node))
    PciTree(root).show(made)
    SimHostTree(root).show(made)
    return made


def test_real_readers_find_a_healthy_server(tmp_path):
    node = shown(tmp_path, model="h100", gpus=8)
    host = kernel(tmp_path, tmp_path / "proc", tmp_path / "sys")
    assert (host.driver, host.module, host.flavor, host.machine) == (node.driver, node.driver, "open", "x86_64")
    assert (host.headers, host.secure_boot, host.signatures_enforced) == (True, False, False)
    assert host.own_module is not None
    assert [root.libraries["libcuda.so.1"] for root in driver_roots(tmp_path)] == [node.driver]
    files = device_nodes(tmp_path / "dev", tmp_path / "proc")
    assert list(files.gpus.values()) == list(range(8))
    assert len(files.char_links) == 8 + 4 + len(capabilities(node))
    bus = examined_gpus(tmp_path / "sys/bus/pci/devices") or ()
    assert all(gpu.answers and gpu.aer is not None for gpu in bus)
    assert {tuple(port.kind for port in gpu.ports) for gpu in bus} == {("downstream", "upstream", "root")}
    assert process_limits(tmp_path / "proc", tmp_path / "dev").euid == 0


def test_a_driver_that_is_not_loaded_leaves_only_what_is_on_the_disk(tmp_path):
    node = shown(tmp_path, model="l40s", gpus=2)
    loaded = set(machine(node))
    node.driver_up = False
    assert {path for path in loaded - set(machine(node)) if not path.startswith(("proc/driver", "sys/module"))} == set()
    assert "nvidia" not in machine(node)["proc/modules"]
    assert "nvidia" not in machine(node)["proc/devices"]


def test_a_lost_gpu_reads_as_ones_and_one_off_the_bus_is_gone(tmp_path):
    node = SimNode(scenario(model="t4", gpus=2))
    tree = PciTree(tmp_path)
    devices = tmp_path / "sys/bus/pci/devices"
    tree.show(node)
    assert [gpu.answers for gpu in examined_gpus(devices) or ()] == [True, True]
    node.gpus[0].faults.lost = True
    tree.show(node)
    assert [gpu.answers for gpu in examined_gpus(devices) or ()] == [False, True]
    node.gpus[0].faults.off_bus = True
    tree.show(node)
    assert [gpu.address for gpu in examined_gpus(devices) or ()] == [str(node.gpus[1].address)]


def test_every_instance_has_its_capability(tmp_path):
    shown(tmp_path, model="a100", gpus=2, mig={1: ["3g.40gb", "3g.40gb"]})
    found = device_nodes(tmp_path / "dev", tmp_path / "proc")
    assert found.capabilities["gpu1/mig/gi1/access"] == 3 + 135 + 9
    assert {f"nvidia-caps/nvidia-cap{minor}" for minor in found.capabilities.values()} <= found.files.keys()


def test_the_kernel_log_is_kept_and_files_follow_a_reload(tmp_path):
    root = tmp_path / "node"
    with World(scenario(model="t4", gpus=1), root) as world:
        world.inject({"do": "xid", "gpu": 0, "xid": 31})
        until(lambda: any("Xid (PCI:0000:1b:00): 31" in line for line in log(root)))
        assert any(line.startswith("NVRM: loading NVIDIA UNIX Open Kernel Module") for line in log(root))
        world.inject({"do": "reload", "seconds": 0.2, "driver": "570.86.15"})
        until(lambda: kernel(root, root / "proc", root / "sys").driver == "570.86.15")
        assert driver_roots(root)[0].libraries["libcuda.so.1"] == "570.86.15"


def log(root):
    return [line.text for line in kernel_text(root / "kmsg", (root / "gpuwatch/kernel.log",))]
