"""What the GPUs and their driver are: model, memory, versions of driver and firmware, as a site expects them."""

from gpuwatch.diagnose.check import DiagnosticCheck, failed, warned
from gpuwatch.diagnose.checks.baseline.compare import (
    Held,
    at_least,
    driver,
    gigabytes,
    is_version,
    of_each_gpu,
    of_node,
    row,
)

MAKE: tuple[DiagnosticCheck, ...] = (
    row(
        "B01",
        "the GPUs are of the expected model",
        "nvmlDeviceGetName holds the baseline's `model`",
        "GPU 3: NVIDIA A100-SXM4-40GB, expected H100",
        "A board of another model is in this node. Compare it with what was ordered, and with the node pool's labels.",
        of_each_gpu(failed, Held("model", lambda gpu: gpu.identity.name, lambda f, e: e.casefold() in f.casefold())),
        commands=("nvidia-smi -q | grep -E 'Product Name|Board Part Number'",),
    ),
    row(
        "B02",
        "the GPUs have the expected memory",
        "nvmlDeviceGetMemoryInfo_v2 `total` against `memory`",
        "GPU 3: memory 42.9 GB, expected 85.9 GB",
        "A smaller board is in this node, or part of its memory is set aside. Compare the part numbers.",
        of_each_gpu(failed, Held("memory", lambda gpu: gpu.memory.total, at_least, gigabytes, name="memory")),
        commands=("nvidia-smi --query-gpu=index,name,memory.total,memory.reserved --format=csv",),
    ),
    row(
        "B03",
        "the driver is of the expected version",
        "nvmlSystemGetDriverVersion begins with `driver`",
        "driver 550.54.15, expected 570.86",
        "Drain the node and install the driver the site agreed on; with the GPU operator, look whether the rollout of "
        "its ClusterPolicy's driver version has reached this node.",
        of_node(warned, Held("driver", lambda facts: driver(facts).version, is_version, name="driver")),
        commands=(
            "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
            "kubectl get node {node} -L nvidia.com/gpu-driver-upgrade-state",
        ),
    ),
    row(
        "B04",
        "the driver offers the expected CUDA version",
        "nvmlSystemGetCudaDriverVersion_v2 begins with `cuda`",
        "CUDA 12.4, expected 12.8",
        "The CUDA version comes with the driver: install the driver that brings it. Newer CUDA programs fail here.",
        of_node(warned, Held("cuda", lambda facts: driver(facts).cuda, is_version, name="CUDA")),
        commands=("nvidia-smi --version",),
    ),
    row(
        "B05",
        "the GPUs' VBIOS is expected",
        "nvmlDeviceGetVbiosVersion begins with one of `vbios`",
        "GPU 3: VBIOS 96.00.5E.00.01, expected 96.00.74",
        "This board has other firmware than the rest, often after a replacement. Bring it up with the server vendor's "
        "firmware bundle, on a drained node; a power cycle follows.",
        of_each_gpu(
            warned,
            Held("vbios", lambda gpu: gpu.identity.vbios, lambda f, e: any(is_version(f, v) for v in e), name="VBIOS"),
        ),
        commands=("nvidia-smi --query-gpu=index,vbios_version,serial --format=csv",),
    ),
    row(
        "B06",
        "the GPUs' GSP firmware is expected",
        "nvmlDeviceGetGspFirmwareVersion begins with `gsp_firmware`",
        "GPU 3: GSP firmware 550.54.15, expected 570.86.15",
        "GSP firmware comes with the driver. Another version than the driver's means that files of an old driver are "
        "left in /lib/firmware/nvidia: reinstall the driver, then reboot.",
        of_each_gpu(
            warned, Held("gsp_firmware", lambda gpu: gpu.identity.gsp_firmware, is_version, name="GSP firmware")
        ),
        commands=("nvidia-smi -q | grep -i gsp", "ls /lib/firmware/nvidia"),
    ),
    row(
        "B07",
        "the GPUs' infoROM image is expected",
        "nvmlDeviceGetInforomImageVersion begins with `inforom`",
        "GPU 3: infoROM G520.0200.00.03, expected G520.0200.00.05",
        "Update it with the VBIOS by the server vendor's firmware bundle; a power cycle follows.",
        of_each_gpu(warned, Held("inforom", lambda gpu: gpu.identity.inforom_image, is_version, name="infoROM")),
        commands=("nvidia-smi --query-gpu=index,inforom.img --format=csv",),
    ),
)
