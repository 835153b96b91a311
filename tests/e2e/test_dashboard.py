"""Every query of Grafana dashboard 12239 has an answer on a real Prometheus, in both of its revisions.

The queries are those of the revision published on grafana.com and of the file in the dcgm-exporter repository.
"""

import contextlib
import itertools

from tests.e2e.processes import agent, job, prometheus
from tests.waiting import until

GPUS = 8
MIG_GPUS, MIG_INSTANCES = 2, 11  # of the scenario `mig`, which has four GPUs
BY_INSTANCE = '{instance=~"$instance", gpu=~"$gpu"}'
BY_HOSTNAME = '{Hostname=~"$Hostname", gpu=~"$gpu"}'
INSTANCES = "(Hostname, gpu, GPU_I_ID, GPU_I_PROFILE)"

# expression, number of lines it draws
PUBLISHED = (
    (f"DCGM_FI_DEV_GPU_TEMP{BY_INSTANCE}", GPUS),
    (f"avg(DCGM_FI_DEV_GPU_TEMP{BY_INSTANCE})", 1),
    (f"DCGM_FI_DEV_POWER_USAGE{BY_INSTANCE}", GPUS),
    (f"sum(DCGM_FI_DEV_POWER_USAGE{BY_INSTANCE})", 1),
    (f"DCGM_FI_DEV_SM_CLOCK{BY_INSTANCE} * 1000000", GPUS),
    (f"DCGM_FI_DEV_GPU_UTIL{BY_INSTANCE}", GPUS),
    (f"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{BY_INSTANCE}", GPUS),
    (f"DCGM_FI_DEV_FB_USED{BY_INSTANCE}", GPUS),
)
REPOSITORY = (
    (f"max(DCGM_FI_DEV_GPU_TEMP{BY_HOSTNAME}) by (Hostname, gpu, uuid)", GPUS),
    (f"avg(DCGM_FI_DEV_GPU_TEMP{BY_HOSTNAME})", 1),
    (f"max(DCGM_FI_DEV_POWER_USAGE{BY_HOSTNAME}) by (Hostname, gpu, uuid)", GPUS),
    (f"sum(max(DCGM_FI_DEV_POWER_USAGE{BY_HOSTNAME}) by (gpu))", 1),
    (f"max(DCGM_FI_DEV_SM_CLOCK{BY_HOSTNAME} * 1000000) by (Hostname, UUID, gpu)", GPUS),
    (f"max(DCGM_FI_PROF_GR_ENGINE_ACTIVE{BY_HOSTNAME}) by {INSTANCES}", GPUS),
    (f"max(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{BY_HOSTNAME}) by {INSTANCES}", GPUS),
    (f"max(DCGM_FI_DEV_FB_USED{BY_HOSTNAME}) by {INSTANCES}", GPUS),
)
# variable: metric and label of its label_values()
VARIABLES = {
    "instance": ("DCGM_FI_DEV_GPU_TEMP", "instance"),
    "gpu": ("DCGM_FI_DEV_GPU_TEMP", "gpu"),
    "Hostname": ("DCGM_FI_DEV_FB_FREE", "Hostname"),
}


FIELDS = ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "DCGM_FI_DEV_FB_USED")


@contextlib.contextmanager
def scraping(place):
    """A Prometheus that scrapes two agents with profile dcgm-4.8: whole GPUs, and one with MIG instances."""
    config = {"agent": {"interval": 0.5}, "metrics": {"profiles": ["dcgm-4.8"]}}
    with (
        agent(place / "whole", source=("--source", "sim"), config=config) as whole,
        agent(place / "mig", source=("--source", "sim:mig"), config=config) as mig,
        prometheus(place / "prometheus", [job("whole", whole.settle()), job("mig", mig.settle())]) as found,
    ):
        for name, field in itertools.product(("whole", "mig"), FIELDS):
            until(lambda name=name, field=field: found.value(f'count({field}{{job="{name}"}})'), f"{field} of {name}")
        yield found


def filled(database, expression, job):
    """The expression as Grafana sends it when `All` is chosen, asked of one agent only."""
    for variable, (metric, label) in VARIABLES.items():
        values = database.label_values(metric, label)
        assert values, f"label_values({metric}, {label}) is empty"
        expression = expression.replace(f"${variable}", "|".join(values))
    return expression.replace("{", f'{{job="{job}", ')


def test_each_query_draws_a_line_for_each_gpu_and_instance(tmp_path):
    with scraping(tmp_path) as database:
        for expression, lines in PUBLISHED + REPOSITORY:
            rows = database.query(filled(database, expression, "whole"))
            assert len(rows) == lines, expression
            assert all(float(row["value"][1]) >= 0 for row in rows), expression
        for field in FIELDS:
            rows = database.query(filled(database, f"max({field}{BY_HOSTNAME}) by {INSTANCES}", "mig"))
            of_instances = [row["metric"] for row in rows if "GPU_I_ID" in row["metric"]]
            instances = {(labels["gpu"], labels["GPU_I_ID"]) for labels in of_instances}
            assert len(instances) == MIG_INSTANCES, field
            assert {gpu for gpu, _ in instances} == {str(gpu) for gpu in range(MIG_GPUS)}, field
            assert all(labels["GPU_I_PROFILE"] for labels in of_instances), field
