"""What one seldom needs of a node: processes, MIG instances, and the hardware itself."""

from dashboards.source.columns import share
from dashboards.source.node_now import THIS_GPU, THIS_POD
from dashboards.source.node_work import EACH
from dashboards.source.panel import Column, Panel, Query, Section

INSTANCE = "node, gpu, gi, profile"
FILLED = """max by ({by}) (
    gpuwatch_gpu_memory_used_bytes{{@gpu, gi!=""}} / gpuwatch_gpu_memory_total_bytes{{@gpu, gi!=""}})"""

PROCESSES = Section(
    "Processes",
    (
        Panel(
            title="Processes",
            kind="table",
            description="Who is on the GPUs: device memory and share of the GPU of each process, its user and its "
            "pod, Slurm job or container. Needs `metrics.processes: true`, and the host's process ids. A process "
            "without a pod on a node of Kubernetes goes round the scheduler.",
            queries=(
                Query("max by (node, gpu, pid, name, type) (gpuwatch_process_gpu_memory_bytes{@gpu})"),
                Query("max by (node, gpu, pid, name, type) (gpuwatch_process_gpu_utilization_ratio{@gpu})"),
                Query(
                    "max by (node, gpu, pid, name, type, user, slurm_job, namespace, pod, container) "
                    "(gpuwatch_process_info{@gpu})"
                ),
            ),
            columns=(
                Column(field="gpu", title="GPU", links=(THIS_GPU,), width=60),
                Column(field="pid", title="PID", width=90),
                Column(field="name", title="Name"),
                Column(field="type", title="Type", width=90),
                Column(field="Value #A", title="Memory", unit="bytes", width=110),
                share("Value #B", "Utilization", width=160),
                Column(field="user", title="User", width=100),
                Column(field="slurm_job", title="Slurm job", width=100),
                Column(field="namespace", title="Namespace", width=130),
                Column(field="pod", title="Pod", links=(THIS_POD,)),
                Column(field="container", title="Container", width=160),
            ),
            sort="GPU",
            no_value="No processes, or `metrics.processes` is not on",
            width=24,
        ),
    ),
    collapsed=True,
)

MIG = Section(
    "MIG instances",
    (
        Panel(
            title="MIG instances",
            kind="table",
            description="One row for each GPU instance and who has it. Memory near full: the next allocation fails "
            "there, however much the GPU has. Activity is of the instance's own share of multiprocessors.",
            queries=(
                Query(f'max by ({INSTANCE}) (gpuwatch_gpu_allocated{{@gpu, gi!=""}})'),
                Query(f'max by ({INSTANCE}, namespace, pod) (gpuwatch_gpu_workload_info{{@gpu, gi!=""}})'),
                Query(f'max by ({INSTANCE}) (gpuwatch_gpu_sm_active_ratio{{@gpu, gi!=""}})'),
                Query(f'max by ({INSTANCE}) (gpuwatch_gpu_tensor_active_ratio{{@gpu, gi!=""}})'),
                Query(FILLED.format(by=INSTANCE)),
                Query(f'max by ({INSTANCE}) (gpuwatch_gpu_memory_total_bytes{{@gpu, gi!=""}})'),
            ),
            columns=(
                Column(field="gpu", title="GPU", links=(THIS_GPU,), width=60),
                Column(field="gi", title="Instance", width=80),
                Column(field="profile", title="Profile", width=100),
                Column(field="namespace", title="Namespace", width=150),
                Column(field="pod", title="Pod", links=(THIS_POD,)),
                share("Value #C", "SM activity", width=160),
                share("Value #D", "Tensor", width=160),
                share("Value #E", "Memory", width=160),
                Column(field="Value #F", title="of", unit="bytes", width=90),
            ),
            sort="GPU",
            no_value="No MIG instances",
            width=24,
            height=10,
        ),
        Panel(
            title="SM activity of the instances",
            kind="timeseries",
            description="Share of its multiprocessors that each instance keeps busy. At 0 for hours: release "
            "the instance.",
            unit="percentunit",
            queries=(
                Query(
                    'max by (gpu, gi, profile) (gpuwatch_gpu_sm_active_ratio{@gpu, gi!=""})',
                    "GPU {{gpu}}: {{profile}} {{gi}}",
                ),
            ),
            no_value="No MIG instances",
            min=0,
            max=1,
            width=12,
        ),
        Panel(
            title="Memory of the instances",
            kind="timeseries",
            description="Share of its device memory that each instance has allocated. Near 1: allocations will fail.",
            unit="percentunit",
            queries=(Query(FILLED.format(by="gpu, gi, profile"), "GPU {{gpu}}: {{profile}} {{gi}}"),),
            no_value="No MIG instances",
            min=0,
            max=1,
            width=12,
        ),
    ),
    collapsed=True,
)

HARDWARE = Section(
    "Hardware",
    (
        Panel(
            title="Temperature",
            kind="timeseries",
            description="The GPU's sensor. What is too hot differs from model to model: judge by the headroom above.",
            unit="celsius",
            queries=(Query('max by (gpu) (gpuwatch_gpu_temperature_celsius{@gpu, sensor="gpu"})', EACH),),
            width=6,
        ),
        Panel(
            title="Memory temperature",
            kind="timeseries",
            description="The sensor of the device memory, on GPUs that have one. Memory far above the GPU and its "
            "neighbours: the heat sink has lost contact there.",
            unit="celsius",
            queries=(Query('max by (gpu) (gpuwatch_gpu_temperature_celsius{@gpu, sensor="memory"})', EACH),),
            no_value="No sensor in the memory",
            width=6,
        ),
        Panel(
            title="Fans",
            kind="timeseries",
            description="Speed of the GPU's own fans, as a share of the highest. At 100 % with little headroom: "
            "dust, or hot air. Server boards have none: the chassis cools them.",
            unit="percentunit",
            queries=(Query("max by (gpu, fan) (gpuwatch_gpu_fan_speed_ratio{@gpu})", "GPU {{gpu}} fan {{fan}}"),),
            no_value="No fans of their own",
            min=0,
            max=1,
            width=6,
        ),
        Panel(
            title="Video and JPEG engines",
            kind="timeseries",
            description="Share of time in which the busiest GPU's engines worked. An engine at 1 is the limit, "
            "whatever the SMs do.",
            unit="percentunit",
            queries=tuple(
                Query(f"max(gpuwatch_gpu_{engine}_utilization_ratio{{@gpu}})", word)
                for engine, word in (
                    ("encoder", "encoder"),
                    ("decoder", "decoder"),
                    ("jpeg", "JPEG"),
                    ("ofa", "optical flow"),
                )
            ),
            min=0,
            max=1,
            width=6,
        ),
        Panel(
            title="Energy",
            kind="bargauge",
            description="Energy of each GPU over the time range of the dashboard.",
            unit="joule",
            queries=(Query("sum by (gpu) (increase(gpuwatch_gpu_energy_joules_total{@gpu}[$__range]))", EACH),),
            min=0,
            width=8,
        ),
        Panel(
            title="What they are",
            kind="table",
            description="Model, place and serial number: what the vendor asks for when a GPU goes back.",
            queries=(Query("max by (node, gpu, model, pci_bus_id, serial, vbios, uuid) (gpuwatch_gpu_info{@gpu})"),),
            columns=(
                Column(field="gpu", title="GPU", links=(THIS_GPU,), width=60),
                Column(field="model", title="Model"),
                Column(field="pci_bus_id", title="PCI address", width=150),
                Column(field="serial", title="Serial", width=130),
                Column(field="vbios", title="VBIOS", width=140),
                Column(field="uuid", title="UUID", width=330),
            ),
            sort="GPU",
            width=16,
            height=8,
        ),
    ),
    collapsed=True,
)
