"""What people ask Prometheus about pods and faults is answered: joins, shares of a shared GPU, the first XID."""

import pytest

from gpuwatch.sim.directory import inject
from tests.e2e.processes import agent, job, prometheus
from tests.waiting import until

SHARED_GPUS = {"0": 3, "1": 2}  # GPU: pods on it, in the scenario `time-sliced`
TRAINER = {"namespace": "ml-research", "pod": "llama-pretrain-0"}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """(agent, Prometheus) on the healthy node: whole GPUs, one pod each at most."""
    yield from _watched(tmp_path_factory.mktemp("healthy"), "sim")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """Prometheus on a node whose GPUs are shared by several pods."""
    for _, database in _watched(tmp_path_factory.mktemp("shared"), "sim:time-sliced"):
        yield database


def _watched(place, source):
    with (
        agent(place / "agent", source=("--source", source), config={"agent": {"interval": 0.5}}) as found,
        prometheus(place / "prometheus", [job("gpuwatch", found.settle())]) as database,
    ):
        until(lambda: (database.value('count_over_time(up{job="gpuwatch"}[1m])') or 0) >= 3, "scrapes")
        until(lambda: database.query("gpuwatch_pod_gpu_energy_joules_total > 0"), "energy of pods")
        yield found, database


def test_a_gpu_joins_with_its_pod(node):
    _, database = node
    rows = database.query(
        "gpuwatch_gpu_utilization_ratio * on(gpu, uuid) group_left(namespace, pod) gpuwatch_gpu_workload_info"
    )
    pods = {row["metric"]["gpu"]: (row["metric"]["namespace"], row["metric"]["pod"]) for row in rows}
    assert {gpu for gpu, pod in pods.items() if pod == tuple(TRAINER.values())} == {"0", "1", "2", "3"}
    assert pods["6"] == ("team-vision", "jupyter-anna")
    assert "7" not in pods, "the free GPU has no pod"


def test_a_free_gpu_stays_visible(node):
    _, database = node
    assert database.value('gpuwatch_gpu_temperature_celsius{gpu="7", sensor="gpu"}') > 0
    assert database.value('gpuwatch_gpu_allocated{gpu="7"}') == 0


def test_increase_sees_the_first_xid(node):
    found, database = node
    counter = 'gpuwatch_gpu_xid_errors_total{gpu="3", xid="79"}'
    assert database.value(counter) == 0
    inject(found.directory, {"do": "xid", "gpu": 3, "xid": 79})
    until(lambda: database.value(counter), "the XID in Prometheus", seconds=5)
    assert database.value(counter) == 1
    assert 0.9 < database.value(f"increase({counter}[10s])") < 2
    alert = database.query(f"increase({counter}[1m]) > 0 and on(gpu, uuid) gpuwatch_gpu_workload_info")
    assert len(alert) == 1


@pytest.mark.parametrize(
    ("of_pods", "of_gpu"),
    [
        ("gpuwatch_pod_gpu_memory_bytes", "gpuwatch_gpu_memory_used_bytes"),
        ("gpuwatch_pod_gpu_utilization_ratio", "gpuwatch_gpu_utilization_ratio * 0 + 1"),
        ("rate(gpuwatch_pod_gpu_energy_joules_total[10s])", "rate(gpuwatch_gpu_energy_joules_total[10s])"),
    ],
)
def test_pods_on_a_shared_gpu_use_no_more_than_it_has(shared, of_pods, of_gpu):
    pods = by_gpu(shared, f"count by (gpu) ({of_pods})")
    used = by_gpu(shared, f"sum by (gpu) ({of_pods})")
    whole = by_gpu(shared, f"sum by (gpu) ({of_gpu})")
    assert pods == SHARED_GPUS
    for gpu, value in used.items():
        assert 0 < value <= whole[gpu] * 1.001


def test_pods_on_a_shared_gpu_differ(shared):
    """No peer's mistake of giving the GPU's own value to each pod."""
    rows = shared.query('gpuwatch_pod_gpu_memory_bytes{gpu="0"}')
    values = {row["metric"]["pod"]: float(row["value"][1]) for row in rows}
    assert values["jupyter-anna"] < values["sd-turbo-0"]
    assert shared.value('count(gpuwatch_gpu_memory_used_bytes{gpu="0"})') == 1


def by_gpu(database, expression):
    return {row["metric"]["gpu"]: float(row["value"][1]) for row in database.query(expression)}
