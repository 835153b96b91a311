"""What joins GPUs to each other and to the network: NVLink, NVSwitch, RDMA."""

from gpuwatch.diagnose.check import DiagnosticCheck
from gpuwatch.diagnose.checks.fabric.links import errors, links
from gpuwatch.diagnose.checks.fabric.network import adapter_drivers, imex, peer_memory
from gpuwatch.diagnose.checks.fabric.switches import manager, registration, subnet_manager, switch_errors
from gpuwatch.diagnose.checks.remedies import DRAIN, KERNEL_LOG, REBOOT
from gpuwatch.diagnose.model import CheckStage

MANAGER_LOG = "journalctl -b -u nvidia-fabricmanager --no-pager | tail -n 50"

FABRIC: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "F01",
        CheckStage.FABRIC,
        "the fabric manager of the driver's very version runs where there are NVSwitches",
        "NVSwitches below /sys/bus/pci/devices (class 0680) or ConnectX functions that manage them (SW_MNG); process "
        "nv-fabricmanager; its version from fabricmanager.log and from the package database, against the driver's",
        "4 NVSwitches, but nv-fabricmanager does not run | fabric manager 550.90.07, driver 570.86.15",
        "Without it CUDA ends with error 802 (system not yet initialized). See why it ended, then start it. With the "
        "GPU operator it runs inside this node's driver pod: read that pod's log, delete the pod to start it anew.",
        manager,
        needs=("D01", "F08"),
        reads=("services",),
        commands=("systemctl status nvidia-fabricmanager", MANAGER_LOG, "systemctl restart nvidia-fabricmanager"),
    ),
    DiagnosticCheck(
        "F02",
        CheckStage.FABRIC,
        "every GPU is registered with a healthy NVLink fabric",
        "nvmlDeviceGetGpuFabricInfo: state, status and health mask; finding fabric_state",
        "GPU 3: it is not registered with the NVSwitch fabric yet",
        "CUDA on such a GPU ends with error 802, or sees no peers. If it stays so for minutes: restart the fabric "
        "manager while the GPUs are idle; if that does not help, drain the node and reset all GPUs together "
        "(nvidia-smi -r), or reboot. In a virtual machine without NVSwitches the host's fabric manager has to activate "
        "its partition.",
        registration,
        needs=("N04", "F01"),
        reads=("view",),
        commands=("nvidia-smi -q | grep -A 10 -w Fabric", MANAGER_LOG, "systemctl restart nvidia-fabricmanager"),
        each=True,
    ),
    DiagnosticCheck(
        "F03",
        CheckStage.FABRIC,
        "every NVLink that leads somewhere is up",
        "nvmlDeviceGetNvLinkState of every link; finding nvlink_down; on NVSwitch systems as many as its siblings have",
        "GPU 3: NVLink 4 down (17 of 18 links)",
        "Look for XID 74 or 144-150 and for SXids in the kernel log. Drain the node and reset all GPUs of the board "
        "together (nvidia-smi -r). A link that stays down is hardware: have the bridge or the GPU reseated, then "
        "replaced.",
        links,
        needs=("N04", "F01"),
        reads=("view",),
        commands=("nvidia-smi nvlink -s -i {gpu}", KERNEL_LOG, DRAIN, "nvidia-smi --gpu-reset"),
        each=True,
    ),
    DiagnosticCheck(
        "F04",
        CheckStage.FABRIC,
        "NVLink error counters stand still",
        "error counters of every NVLink, twice; finding nvlink_errors",
        "GPU 3: 1200 NVLink errors within an hour, most on link 4",
        "Errors are repeated or corrected at a price, and often become a dead link. When its work is done, drain the "
        "node and reset the GPUs; if they rise again, have the GPU or the bridge reseated, then replaced.",
        errors,
        needs=("N04",),
        reads=("view",),
        commands=("nvidia-smi nvlink -e -i {gpu}", DRAIN, "nvidia-smi --gpu-reset"),
        each=True,
    ),
    DiagnosticCheck(
        "F05",
        CheckStage.FABRIC,
        "RDMA adapters can reach GPU memory",
        "nvidia_peermem in /proc/modules, or open kernel modules on Linux 5.12 or newer (dma-buf); only where an mlx5 "
        "adapter has an InfiniBand device",
        "2 RDMA adapters, but no way to GPU memory: nvidia_peermem is not loaded",
        "Communication between nodes goes through host memory, at a fraction of the speed. Load the module, at every "
        "boot too; it needs the RDMA modules to be loaded first. With the GPU operator: driver.rdma.enabled=true.",
        peer_memory,
        needs=("D01",),
        reads=("services", "kernel"),
        commands=("modprobe nvidia-peermem", "echo nvidia-peermem > /etc/modules-load.d/nvidia-peermem.conf"),
    ),
    DiagnosticCheck(
        "F06",
        CheckStage.FABRIC,
        "RDMA adapters have their driver",
        "PCI functions of ConnectX, their bound driver and InfiniBand devices; /run/mellanox/drivers/.driver-ready of "
        "the network operator",
        "adapter 0000:18:00.0 has no driver",
        "Load the adapter's modules and see what the kernel says. With the network operator: look at the driver pod "
        "(mofed) of this node; the GPU operator's driver pod waits for it where RDMA is enabled.",
        adapter_drivers,
        reads=("services",),
        commands=("modprobe mlx5_core", "modprobe mlx5_ib", "dmesg -T | grep -i mlx5", "rdma link"),
    ),
    DiagnosticCheck(
        "F07",
        CheckStage.FABRIC,
        "IMEX is there where NVLink spans nodes",
        "on GB200 and GB300: the process nvidia-imex, and /dev/nvidia-caps-imex-channels",
        "neither nvidia-imex nor an IMEX channel is there",
        "Jobs of several nodes cannot share GPU memory over NVLink. With NVIDIA's DRA driver a ComputeDomain brings "
        "both when a job asks for it: look there. Without it, on every node of the domain: fill "
        "/etc/nvidia-imex/nodes_config.cfg and start the service; channel 0 is made with "
        "`options nvidia NVreg_CreateImexChannel0=1`.",
        imex,
        needs=("D01",),
        reads=("services", "view"),
        commands=("systemctl status nvidia-imex", "nvidia-imex-ctl -N", "ls -l /dev/nvidia-caps-imex-channels"),
    ),
    DiagnosticCheck(
        "F08",
        CheckStage.FABRIC,
        "what manages NVLink 5 switches is there",
        "where ConnectX functions manage the NVSwitches (HGX B200 and newer): ib_umad, by /sys/class/infiniband_mad, "
        "and the process nvlsm",
        "ib_umad is not loaded: the switches cannot be reached",
        "The fabric manager's start script begins the NVLink subnet manager (nvlsm), which speaks to the switches "
        "through ib_umad; without ib_umad, ibstat (infiniband-diags) or nvlsm it gives up. Install what is missing, "
        "load the module at every boot too, then restart the fabric manager.",
        subnet_manager,
        needs=("D01",),
        reads=("services",),
        commands=(
            "modprobe ib_umad",
            "echo ib_umad > /etc/modules-load.d/ib_umad.conf",
            "command -v ibstat; dpkg -l nvlsm || rpm -q nvlsm",
            "systemctl restart nvidia-fabricmanager",
        ),
    ),
    DiagnosticCheck(
        "F09",
        CheckStage.FABRIC,
        "no NVSwitch has reported a fatal error lately",
        "SXids of the kernel log; findings sxid_fatal and sxid_warning",
        "SXid 20034 of NVSwitch 2: LTSSM Fault Up (fatal), 4 min ago",
        "Jobs over NVLink have been stopped or will fail. Drain the node and reset all GPUs and NVSwitches together "
        "(nvidia-smi -r without -i), or reboot. If the same switch or link tells it again, have the baseboard looked "
        "at.",
        switch_errors,
        needs=("N02",),
        reads=("view",),
        commands=("dmesg -T | grep -i sxid", DRAIN, "nvidia-smi --gpu-reset", REBOOT),
    ),
)
