"""What people ask Prometheus about pods and faults is answered: joins, shares of a shared GPU, the first XID."""

import contextlib

import pytest

from gpuwatch.sim.directory import inject
from tests.e2e.processes import agent, job, prometheus
from tests.waiting import until

SHARED_GPUS = {"0": 3, "1": 2}  # GPU: pods on it, in the scenario `time-sliced`
SHARES = (
    ("gpuwatch_pod_gpu_memory_bytes", "gpuwatch_gpu_memory_used_bytes"),
    ("gpuwatch_pod_gpu_utilization_ratio", "gpuwatch_gpu_utilization_ratio * 0 + 1"),
    ("rate(gpuwatch_pod_gpu_energy_joules_total[1m])", "rate(gpuwatch_gpu_energy_joules_total[1m])"),
)
"""What its pods use, and the whole GPU has: asked together, so that both are of one scrape."""

TRAINER = {"namespace": "ml-research", "pod": "llama-pretrain-0"}


@contextlib.contextmanager
def watched(place, source):
    """(agent, Prometheus) that has scraped it some times."""
    with (
        agent(place / "agent", source=("--source", source), config={"agent": {"interval": 0.5}}) as found,
        prometheus(place / "prometheus", [job("gpuwatch", found.settle())]) as database,
    ):
        scrapes = 'count_over_time(gpuwatch_pod_gpu_energy_joules_total{gpu="0"}[1m])'
        until(lambda: (database.value(f"min({scrapes})") or 0) >= 3, "scrapes with the energy of pods")
        until(lambda: database.query("gpuwatch_pod_gpu_energy_joules_total > 0"), "energy of pods")
        yield found, database


def test_a_gpu_joins_with_its_pod_a_free_one_stays_visible_and_increase_knows_the_first_xid(tmp_path):
    """On the healthy node: whole GPUs, one pod each at most."""
    with watched(tmp_path, "sim") as (found, database):
        rows = database.query(
            "gpuwatch_gpu_utilization_ratio * on(gpu, uuid) group_left(namespace, pod) gpuwatch_gpu_workload_info"
        )
        pods = {row["metric"]["gpu"]: (row["metric"]["namespace"], row["metric"]["pod"]) for row in rows}
        assert {gpu for gpu, pod in pods.items() if pod == tuple(TRAINER.values())} == {"0", "1", "2", "3"}
        assert pods["6"] == ("team-vision", "jupyter-anna")
        assert "7" not in pods, "the free GPU has no pod"
        assert database.value('gpuwatch_gpu_temperature_celsius{gpu="7", sensor="gpu"}') > 0
        assert database.value('gpuwatch_gpu_allocated{gpu="7"}') == 0
        counts_the_first_xid(found, database)


def counts_the_first_xid(found, database):
    """The counter is there, at 0, before there is anything to count; without that, `increase` of 0 to 1 is nothing."""
    counter = 'gpuwatch_gpu_xid_errors_total{gpu="3", xid="79"}'
    assert database.value(counter) == 0
    inject(found.directory, {"do": "xid", "gpu": 3, "xid": 79})
    until(lambda: database.value(counter), "the XID in Prometheus")
    assert database.value(counter) == 1
    assert 0.9 < database.value(f"increase({counter}[1m])") < 2
    alert = database.query(f"increase({counter}[1m]) > 0 and on(gpu, uuid) gpuwatch_gpu_workload_info")
    assert len(alert) == 1


@pytest.mark.slow  # quick: shared GPUs in tests/workloads
def test_pods_on_a_shared_gpu_use_no_more_than_it_has_and_differ(tmp_path):
    """No peer's mistake of giving the GPU's own value to each pod."""
    with watched(tmp_path, "sim:time-sliced") as (_, database):
        for of_pods, of_gpu in SHARES:
            pods = by_gpu(database, f"count by (gpu) ({of_pods})")
            used = by_gpu(database, f"sum by (gpu) ({of_pods}) / sum by (gpu) ({of_gpu})")
            assert pods == SHARED_GPUS, of_pods
            assert used.keys() == SHARED_GPUS.keys(), of_pods
            assert all(0 < part <= 1.001 for part in used.values()), of_pods
        rows = database.query('gpuwatch_pod_gpu_memory_bytes{gpu="0"}')
        values = {row["metric"]["pod"]: float(row["value"][1]) for row in rows}
        assert values["jupyter-anna"] < values["sd-turbo-0"]
        assert database.value('count(gpuwatch_gpu_memory_used_bytes{gpu="0"})') == 1


def by_gpu(database, expression):
    return {row["metric"]["gpu"]: float(row["value"][1]) for row in database.query(expression)}
