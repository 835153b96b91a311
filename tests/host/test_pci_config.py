"""What a PCI device's own registers and its neighbours tell, also when they are cut short or nonsense."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.host.pci import Aer, acs_redirects, aer, answers, examined_gpus, iommu_domain, port_kind, ports
from gpuwatch.sim.surroundings.pcitree import COMPLETION_REDIRECT, REQUEST_REDIRECT, SOURCE_VALIDATION, port_config


def test_a_device_that_is_gone_reads_as_ones(tmp_path: Path) -> None:
    for content, is_there in ((b"\xff" * 64, False), (b"\xde\x10\x30\x23" + bytes(60), True), (b"\xde", None)):
        (tmp_path / "config").write_bytes(content)
        assert answers(tmp_path) is is_there
    assert answers(tmp_path / "absent") is None


def test_a_device_without_power_is_not_woken(tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(b"\xde\x10\x30\x23" + bytes(60))
    for state, is_there in (("D0\n", True), ("D3hot\n", True), ("D3cold\n", None)):
        (tmp_path / "power_state").write_text(state)
        assert answers(tmp_path) is is_there


def test_a_dead_port_is_asked_no_further(tmp_path: Path) -> None:
    port = tmp_path / "0000:17:01.0"
    (port / "0000:18:00.0").mkdir(parents=True)
    (port / "config").write_bytes(b"\xff" * 4096)
    assert [(each.kind, each.redirects) for each in ports(port / "0000:18:00.0")] == [(None, None)]


def test_ports_are_distinguished() -> None:
    assert [port_kind(port_config(kind)) for kind in ("root", "upstream", "downstream")] == [
        "root",
        "upstream",
        "downstream",
    ]
    assert port_kind(port_config("root")[:64]) is None  # all that others than root may read
    assert port_kind(b"") is None


def test_acs_redirects_requests_or_completions() -> None:
    assert acs_redirects(port_config("downstream", SOURCE_VALIDATION)) is False
    assert acs_redirects(port_config("downstream", REQUEST_REDIRECT)) is True
    assert acs_redirects(port_config("downstream", COMPLETION_REDIRECT | SOURCE_VALIDATION)) is True
    assert acs_redirects(port_config("downstream", REQUEST_REDIRECT)[:64]) is None
    assert acs_redirects(bytes(4096)) is False


def test_only_counters_that_count_are_kept(tmp_path: Path) -> None:
    (tmp_path / "aer_dev_fatal").write_text("Undefined 0\nDLP 3\nTOTAL_ERR_FATAL 3\n")
    (tmp_path / "aer_dev_nonfatal").write_text("CmpltTO 1\nodd\nMalfTLP -1\nECRC " + "9" * 5000 + "\n")
    assert aer(tmp_path) == Aer(nonfatal={"CmpltTO": 1}, fatal={"DLP": 3})
    assert aer(tmp_path / "absent") is None


def test_the_bridges_above_a_gpu_are_the_folders_it_lies_in(tmp_path: Path) -> None:
    root = tmp_path / "devices/pci0000:17/0000:17:01.0"
    gpu = root / "0000:18:00.0/0000:1b:00.0"
    gpu.mkdir(parents=True)
    (root / "config").write_bytes(port_config("root"))
    for name, text in {"vendor": "0x10de\n", "class": "0x030200\n"}.items():
        (gpu / name).write_text(text)
    (gpu / "iommu_group").mkdir()
    (gpu / "iommu_group/type").write_text("DMA-FQ\n")
    bus = tmp_path / "bus"
    bus.mkdir()
    (bus / gpu.name).symlink_to(gpu)
    assert [(port.address, port.kind) for port in ports(bus / gpu.name)] == [
        ("0000:18:00.0", None),
        ("0000:17:01.0", "root"),
    ]
    found = examined_gpus(bus) or ()
    assert [(each.address, each.answers, each.iommu, len(each.ports)) for each in found] == [
        (gpu.name, None, "DMA-FQ", 2)
    ]
    assert iommu_domain(gpu / "absent") is None
    assert examined_gpus(tmp_path / "absent") is None


@given(st.binary(max_size=600))
def test_any_bytes_are_registers(config: bytes) -> None:
    assert port_kind(config) in (None, "root", "upstream", "downstream")
    assert acs_redirects(config) in (None, False, True)
