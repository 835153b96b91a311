"""Verdicts about bus, kernel, driver and device files that a tree of plain files cannot show."""

import msgspec
import pytest

from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.checks.driver_fit import gpu_generation
from gpuwatch.diagnose.checks.kernel_log import lines_since_load, matching_lines
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.host.driver_files import DeviceNode, DeviceNodes, DriverRoot, device_nodes
from gpuwatch.diagnose.host.kernel_modules import Kernel, Module
from gpuwatch.diagnose.host.kernel_text import KernelMessage
from gpuwatch.diagnose.host.kubelet_files import KubeletFiles
from gpuwatch.diagnose.host.services import OperatorFiles
from gpuwatch.diagnose.model import CheckStatus
from gpuwatch.host.machine import ProcessLimits
from gpuwatch.host.pci import BusGpu, PciPort
from gpuwatch.model.snapshot import SourceStatus
from tests.diagnose.hosts import seen

OURS = {check.id for check in CHECKS if check.id[0] in "HDV"}
JUDGES = {check.id: check.judge for check in CHECKS}
HERE = (DriverRoot(path="/", libraries={"libnvidia-ml.so.1": "570.86.15"}, modprobe=True),)
LOADED = Kernel(release="6.8", driver="570.86.15", flavor="open", modules={"nvidia": Module(size=1)})
KUBERNETES = KubeletFiles(present=True)
FIRST = "0000:1b:00.0"


def judged(id_, **facts):
    return JUDGES[id_](CheckContext(NodeFacts(at=1.0, **facts)))


def lines(*texts):
    return tuple(KernelMessage(text=text, at=float(number)) for number, text in enumerate(texts))


def nodes(**files):
    well = {
        "nvidiactl": DeviceNode(major=195, minor=255),
        "nvidia-uvm": DeviceNode(major=508, minor=0),
        "nvidia-uvm-tools": DeviceNode(major=508, minor=1),
        "nvidia0": DeviceNode(major=195, minor=0),
    }
    return DeviceNodes(files=well | files, majors={"nvidia-uvm": 508}, gpus={FIRST: 0})


@pytest.mark.parametrize("id_", sorted(OURS - {"H01", "D01", "D02", "D04", "V01"}))
def test_nothing_is_reported_against_a_machine_of_which_nothing_is_known(id_):
    """The others are asked only when their sections are there."""
    assert judged(id_).result in (CheckStatus.PASS, CheckStatus.SKIP)


def test_device_files_of_a_driver_that_was_loaded_before():
    stale = judged("V01", nodes=nodes(**{"nvidia-uvm": DeviceNode(major=511, minor=0)}), driver_roots=HERE)
    assert (stale.result, stale.message) == (CheckStatus.FAIL, "/dev/nvidia-uvm is 511:0, the driver is 508:0")
    plain = judged("V01", nodes=nodes(nvidia0=DeviceNode()), driver_roots=HERE)
    assert plain.message == "/dev/nvidia0 is no device file"
    assert judged("V01", nodes=nodes(), driver_roots=HERE).result is CheckStatus.PASS


def test_device_files_for_root_only_are_odd_unless_configured_so():
    shut = nodes(nvidia0=DeviceNode(major=195, minor=0, mode=0o600))
    assert judged("V01", nodes=shut, driver_roots=HERE).result is CheckStatus.WARN
    wanted = Kernel(params={"DeviceFileMode": "432"})
    assert judged("V01", nodes=shut, driver_roots=HERE, kernel=wanted).result is CheckStatus.PASS


def test_missing_device_files_may_be_elsewhere_or_a_containers_own_or_made_later():
    empty = DeviceNodes(gpus={FIRST: 0})
    assert judged("V01", nodes=empty).message == "not read: this container has a /dev of its own"
    inside = (DriverRoot(path="/run/nvidia/driver", devices=True),)
    assert judged("V01", nodes=empty, driver_roots=inside).result is CheckStatus.PASS
    assert "nvidia-modprobe makes them" in judged("V01", nodes=empty, driver_roots=HERE).message
    assert judged("V01", nodes=empty, driver_roots=HERE, kubelet=KUBERNETES).result is CheckStatus.FAIL


def test_nvml_that_answers_a_new_process_is_trusted_more_than_files():
    view = seen()
    other = (DriverRoot(path="/", libraries={"libnvidia-ml.so.1": "535.1.1"}),)
    assert judged("H01", bus=(), view=view).result is CheckStatus.SKIP
    assert judged("D01", kernel=Kernel(), view=view).result is CheckStatus.SKIP
    assert judged("D04", driver_roots=(), view=view).result is CheckStatus.SKIP
    assert judged("D03", kernel=LOADED, driver_roots=other, view=view).result is CheckStatus.WARN
    assert judged("D03", kernel=LOADED, driver_roots=other, view=view, agent=True).result is CheckStatus.FAIL
    assert judged("D01", kernel=Kernel(), view=view, plain=True).result is CheckStatus.FAIL


def test_without_kubernetes_nvidia_modprobe_makes_what_is_missing():
    bare = Kernel(driver="570.86.15", modules={"nvidia": Module(size=1)})
    assert judged("D02", kernel=bare, driver_roots=HERE).result is CheckStatus.PASS
    assert judged("D02", kernel=bare, driver_roots=HERE, kubelet=KUBERNETES).result is CheckStatus.FAIL
    assert judged("D02", kernel=bare, driver_roots=()).result is CheckStatus.FAIL


def test_a_driver_container_needs_no_module_on_the_host():
    operator = OperatorFiles(present=True)
    kernel = Kernel(release="6.8", installed={"6.8": None})
    assert judged("H08", kernel=kernel, operator=operator, driver_roots=()).result is CheckStatus.SKIP
    assert "driver container" in judged("D01", kernel=kernel, operator=operator, driver_roots=()).message


def test_translated_addresses_are_how_grace_works():
    ports = (PciPort(address="0000:1a:00.0", kind="downstream", redirects=False),)
    places = ("0000:1b:00.0", "0000:43:00.0")
    bus = tuple(BusGpu(address=address, iommu="DMA-FQ", ports=ports) for address in places)
    assert judged("H06", bus=bus).result is CheckStatus.WARN
    assert judged("H06", bus=bus, kernel=Kernel(machine="aarch64")).result is CheckStatus.PASS
    closed = BusGpu(address=FIRST, ports=(PciPort(address="0000:1a:00.0", kind="downstream"),))
    assert "only root" in judged("H06", bus=(closed, closed)).message
    assert judged("H06", bus=bus[:1]).message == "one GPU has no peer"


def test_a_gpu_that_answers_is_not_judged_by_old_lines():
    log = lines(f"NVRM: GPU {FIRST}: RmInitAdapter failed! (0x62:0xffff:2477)")
    assert judged("H10", kernel_log=log, view=seen()).result is CheckStatus.PASS
    assert judged("H10", kernel_log=log).result is CheckStatus.WARN
    assert judged("H10", kernel_log=log, view_failure="hangs").result is CheckStatus.FAIL


@pytest.mark.parametrize(
    ("xid", "result"),
    [(79, CheckStatus.FAIL), (13, CheckStatus.PASS), (119, CheckStatus.PASS), (999, CheckStatus.PASS)],
)
def test_only_xids_that_put_a_gpu_out_of_order_count(xid, result):
    log = lines(f"NVRM: Xid (PCI:0000:1b:00): {xid}, pid=1, name=python3, words")
    assert judged("H10", kernel_log=log, view_failure="hangs").result is result


def test_what_was_reported_before_the_driver_was_loaded_again_is_over():
    log = lines(
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 236",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build",
        "NVRM: Xid (PCI:0000:1b:00): 79, words",
        "nvidia-nvlink: Nvlink Core is being initialized, major device number 236",
        "NVRM: GPU 0000:1b:00.0: RmInitAdapter failed!",
        "NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build",
        "nvidia-uvm: Loaded the UVM driver, major device number 508.",
    )
    case = CheckContext(NodeFacts(at=1.0, kernel_log=log))
    assert [line.at for line in lines_since_load(case)] == [3.0, 4.0, 5.0, 6.0]
    assert [line.key for line in matching_lines(case, "NVRM: GPU")] == ["0000:1b:00"]
    assert not list(matching_lines(case, "NVRM: Xid"))


@pytest.mark.parametrize(
    ("device_id", "name"),
    [
        ("0x1db6", "Volta"),
        ("0x1eb8", "Turing"),
        ("0x20b2", "Ampere"),
        ("0x2236", "Ampere"),
        ("0x2330", "Hopper"),
        ("0x25b6", "Ampere"),
        ("0x26b9", "Ada Lovelace"),
        ("0x2901", "Blackwell"),
        ("0x2bb1", "Blackwell"),
        ("0x3182", "Blackwell Ultra"),
        ("0x0001", None),
        (None, None),
        ("gone", None),
    ],
)
def test_a_device_id_shows_the_generation(device_id, name):
    found = gpu_generation(BusGpu(address=FIRST, device_id=device_id))
    assert (found.name if found else None) == name


def test_a_generation_has_first_and_last_drivers():
    volta = BusGpu(address=FIRST, device_id="0x1db6")
    new = Kernel(driver="590.44.01", flavor="proprietary")
    assert "580 is the last driver for Volta" in judged("D06", bus=(volta,), kernel=new).message
    wrong = judged("D07", bus=(volta,), kernel=msgspec.structs.replace(new, flavor="open"))
    assert "needs the proprietary kernel modules" in wrong.message


def test_limits_are_judged_only_where_rdma_is():
    rdma = Kernel(modules={"mlx5_ib": Module(size=1)})
    small = ProcessLimits(euid=0, shm=64 << 20, memlock_of="containerd")
    assert judged("V04", limits=small, kernel=rdma, driver_roots=HERE).result is CheckStatus.WARN
    assert judged("V04", limits=small, kernel=rdma).result is CheckStatus.PASS  # a container's own /dev/shm
    assert judged("V04", limits=small, kernel=LOADED, driver_roots=HERE).result is CheckStatus.SKIP
    own = ProcessLimits(euid=0, memlock=8 << 20)
    assert judged("V04", limits=own, kernel=rdma).result is CheckStatus.SKIP


def test_commands_fit_on_one_line_each():
    for check in CHECKS:
        if check.id in OURS:
            assert check.commands, check.id
            assert "\n" not in "".join(check.commands), check.id


def test_a_narrow_link_is_a_fault_where_the_slot_or_its_siblings_have_more():
    def gpus(*widths, slot=None):
        ports = (PciPort(address="0000:1a:00.0", kind="downstream", link_width_max=slot),)
        return tuple(
            BusGpu(
                address=f"0000:{0x1B + at:02x}:00.0",
                device_id="0x2330",
                link_width=width,
                link_width_max=16,
                ports=ports,
            )
            for at, width in enumerate(widths)
        )

    assert judged("H04", bus=gpus(8, slot=16)).result is CheckStatus.WARN
    assert judged("H04", bus=gpus(8, slot=8)).result is CheckStatus.PASS
    assert judged("H04", bus=gpus(8)).message == "x8; 1 GPU in a slot that gives no more, or that does not report it"
    assert judged("H04", bus=gpus(16, 16, 8, 16)).message == "PCIe link of GPU 0000:1d:00.0 is x8 of x16"
    assert judged("H04", bus=gpus(16, 8)).result is CheckStatus.PASS


def test_gpus_that_are_excluded_are_named(tmp_path):
    text = "Model: NVIDIA H100\nGPU UUID: GPU-1\nDevice Minor: 3\nGPU Excluded:\t Yes\n"
    folder = tmp_path / "driver/nvidia/gpus" / FIRST
    folder.mkdir(parents=True)
    (folder / "information").write_text(text)
    found = device_nodes(tmp_path, tmp_path)
    assert (found.gpus, found.excluded) == ({}, (FIRST,))


def test_a_process_that_lost_its_devices_is_reported():
    nvml = SourceStatus(name="nvml", up=False, reason="nvmlInit: Unknown Error", code=999, failures=1)
    snapshot = msgspec.structs.replace(seen().snapshot, sources=(nvml,), driver=None, gpus=(), statuses=())
    verdict = judged("N02", view=msgspec.structs.replace(seen(), snapshot=snapshot))
    assert verdict.result is CheckStatus.FAIL
    assert "systemd has reloaded" in (verdict.remedy or "")


INSIDE = DriverRoot(path="/run/nvidia/driver", devices=True)
HOST = HERE[0]
WITH_DEVICES = msgspec.structs.replace(HOST, devices=True)
MISSING = {
    "all, the host's own root has them not": ((HOST,), ("nvidiactl", "nvidia0"), "FAIL"),
    "all, they are in the driver container": ((HOST, INSIDE), ("nvidiactl", "nvidia0"), "PASS"),
    "all, the driver container has none": ((HOST, DriverRoot(path=INSIDE.path)), ("nvidiactl", "nvidia0"), "FAIL"),
    "all, but of the host's own root": (
        (msgspec.structs.replace(HOST, devices=True),),
        ("nvidiactl", "nvidia0"),
        "FAIL",
    ),
    "one, though the driver container has it": ((HOST, INSIDE), ("nvidia0",), "FAIL"),
}


@pytest.mark.parametrize(("driver_roots", "names", "result"), MISSING.values(), ids=MISSING)
def test_device_files_are_searched_where_the_driver_lives(driver_roots, names, result):
    left = {name: file for name, file in nodes().files.items() if name not in names}
    there = msgspec.structs.replace(nodes(), files=left)
    found = judged("V01", nodes=there, driver_roots=driver_roots, kubelet=KUBERNETES)
    assert found.result is CheckStatus[result]
    if found.result is CheckStatus.PASS:
        assert found.message == "in /run/nvidia/driver/dev, of the driver container"
    else:
        assert found.message == f"{', '.join(f'/dev/{name}' for name in names)} missing"
        assert found.evidence == {f"/dev/{name}": "missing" for name in names}


GIB = 1 << 30
LIMITS = {
    ("shm", GIB - 1): "shared memory has 1023 MiB: NCCL falls back or fails",
    ("shm", GIB): "memlock is unlimited",
    ("memlock", GIB - 1): "memlock of containerd is 1048575 KiB: RDMA cannot pin memory",
    ("memlock", GIB): "memlock is 1 GiB",
}


@pytest.mark.parametrize(("limit", "number"), LIMITS)
def test_a_gibibyte_is_enough_for_rdma(limit, number):
    rdma = Kernel(modules={"mlx5_ib": Module(size=1)})
    limits = ProcessLimits(euid=0, memlock_of="containerd", **{limit: number})
    found = judged("V04", limits=limits, kernel=rdma, driver_roots=HERE)
    assert found.message == LIMITS[limit, number]
    assert found.result is (CheckStatus.WARN if number < GIB else CheckStatus.PASS)


def test_of_several_missing_files_the_first_is_named_and_the_others_counted():
    two = {"gpu0/mig/gi1/access": 12, "gpu0/mig/gi2/access": 21, "mig/config": 1}
    found = judged("V03", nodes=msgspec.structs.replace(nodes(), capabilities=two), driver_roots=HERE)
    assert found.message == "/dev/nvidia-caps/nvidia-cap12 and 1 more missing: MIG instances cannot be used"
    assert found.evidence.keys() == two.keys() - {"mig/config"}
