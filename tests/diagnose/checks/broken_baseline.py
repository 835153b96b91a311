"""Hosts on which checks fail: baseline."""

from collections.abc import Callable
from typing import Any

import msgspec

from gpuwatch.diagnose.active.results import Active, DeviceRun
from gpuwatch.diagnose.baseline.expectation import Expectation
from gpuwatch.diagnose.model import CheckStatus
from tests.diagnose.checks.broken import Broken
from tests.diagnose.hosts import Host


def expects(**keys: Any) -> Callable[[Host], None]:
    """The site's baseline."""

    def well(host: Host) -> None:
        host.expect = Expectation(**keys)

    return well


def gpu_3(**changes: Any) -> Callable[[Host], None]:
    """One GPU differs from what is expected, and from its siblings."""
    return lambda host: host.gpu(3, **changes)


def slower_links(host: Host) -> None:
    assert host.view is not None
    links = host.view.snapshot.gpus[3].nvlinks
    host.gpu(3, nvlinks=tuple(msgspec.structs.replace(link, speed_bytes_per_second=20e9) for link in links))


def fewer_links(host: Host) -> None:
    assert host.view is not None
    host.gpu(3, nvlinks=host.view.snapshot.gpus[3].nvlinks[:12])


def copies(host_to_device: float, peer: float = 40e9) -> Callable[[Host], None]:
    """What the active checks measured."""

    def measure(host: Host) -> None:
        runs = (
            DeviceRun(test="bandwidth", device="GPU-0", index=0, host_to_device=50e9, device_to_host=50e9),
            DeviceRun(test="bandwidth", device="GPU-3", index=3, host_to_device=host_to_device, device_to_host=50e9),
            DeviceRun(test="peer", device="GPU-0", index=0, peer=3, peer_bandwidth=peer),
        )
        host.active = Active(runs=runs)

    return measure


def both(*steps: Callable[[Host], None]) -> Callable[[Host], None]:
    """One after the other."""

    def run(host: Host) -> None:
        for step in steps:
            step(host)

    return run


WARN = CheckStatus.WARN

BROKEN: tuple[Broken, ...] = (
    Broken("B01", gpu_3(identity={"name": "NVIDIA A100-SXM4-40GB"}), "GPU 3: NVIDIA A100-SXM4-40GB, expected h100",
           "another model", well=expects(model="h100")),
    Broken("B02", gpu_3(memory={"total": 40 << 30}), "GPU 3: memory 42.95 GB, expected 80 GB", "memory.total",
           well=expects(memory=80_000_000_000)),
    Broken("B03", expects(driver="999.1"), ", expected 999.1", "install the site's driver", WARN,
           well=expects(driver="580")),
    Broken("B04", expects(cuda="99.1"), ", expected 99.1", "comes with the driver", WARN, well=expects(cuda="13")),
    Broken("B05", gpu_3(identity={"vbios": "96.00.5E.00.01"}),
           "GPU 3: VBIOS 96.00.5E.00.01, expected 96.00.A5 or 97.00", "firmware bundle",
           WARN, well=expects(vbios=("96.00.A5", "97.00"))),
    Broken("B06", gpu_3(identity={"gsp_firmware": "570.86.15"}), "GPU 3: GSP firmware 570.86.15, expected 580",
           "/lib/firmware/nvidia", WARN, well=expects(gsp_firmware="580")),
    Broken("B07", gpu_3(identity={"inforom_image": "G520.0200.00.03"}), "00.03, expected G520.0200.00.05",
           "firmware bundle", WARN, well=expects(inforom="G520.0200.00.05")),
    Broken("B08", gpu_3(pcie={"width": 8}), "GPU 3: x8, expected x16", "Reseat the board",
           well=expects(pcie_width=16)),
    Broken("B08", gpu_3(pcie={"generation_max": 3}), "GPU 3: gen3, expected gen5", "LnkSta",
           well=expects(pcie_generation=5)),
    Broken("B09", fewer_links, "GPU 3: 12 links, expected 18 links", "nvidia-smi nvlink --status -i 3",
           well=expects(nvlinks=18, nvlink_speed=26.562e9)),
    Broken("B09", slower_links, "GPU 3: 20 GB/s a link, expected 26.56 GB/s a link", "nvidia-smi nvlink --status -i 3",
           well=expects(nvlinks=18, nvlink_speed=26.562e9)),
    Broken("B10", gpu_3(ecc={"enabled": False, "pending": False}), "GPU 3: ECC off, expected ECC on",
           "sudo nvidia-smi -i 3 -e 1", WARN, well=expects(ecc=True)),
    Broken("B10", expects(ecc=False), "-7: ECC on, expected ECC off", "sudo nvidia-smi -i 0 -e 0", WARN,
           well=expects(ecc=True)),
    Broken("B11", gpu_3(mig_enabled=True), "GPU 3: MIG on, expected MIG off", "nvidia.com/mig.config", WARN,
           well=expects(mig=False)),
    Broken("B12", gpu_3(persistence_mode=False), "GPU 3: persistence mode off, expected persistence mode on",
           "nvidia-persistenced", WARN, well=expects(persistence=True)),
    Broken("B13", gpu_3(power={"limit_configured": 400.0}), "GPU 3: power limit 400 W, expected 700 W",
           "gpuwatch tune status", WARN, well=expects(power_limit=700.0)),
    Broken("B14", expects(kernel="6.11"), ", expected 6.11", "uname -r", WARN, well=expects(kernel="6.8")),
    Broken("B15", expects(container_toolkit="9.9"), ", expected 9.9", "nvidia-container-toolkit", WARN,
           well=expects(container_toolkit="1")),
    Broken("B16", expects(fabric_manager="999"), ", expected 999", "nvidia-fabricmanager", WARN,
           well=expects(fabric_manager="580")),
    Broken("B17", copies(31e9), "GPU 3: 31 GB/s from host to device, expected 40 GB/s", "nvidia-smi topo -m",
           well=both(expects(host_to_device=40e9, device_to_host=40e9), copies(50e9)), active=True),
    Broken("B17", copies(50e9, peer=9e9), "GPU 0: 9 GB/s between GPUs, expected 30 GB/s", "NVLink",
           well=both(expects(peer_bandwidth=30e9), copies(50e9)), active=True),
)  # fmt: skip
