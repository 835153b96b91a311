"""DeviceTaintRules over HTTP: which devices a remediator takes for its GPUs, and whose rules it deletes."""

from typing import Any

import pytest

from gpuwatch.kube.devices import DRIVER, MANAGED
from gpuwatch.kube.errors import ApiCall, Forbidden
from gpuwatch.kube.transport import Transport
from gpuwatch.model.finding import Response
from gpuwatch.remediation.service.plan_reads import SERVED_SECONDS
from gpuwatch.sim.kubeapi.cluster import SimulatedCluster
from gpuwatch.sim.kubeapi.server import SimulatedApiServer
from tests.remediation.model.remediating import NAMESPACE, NODE, Bench, FakeClock, fatal, settings


@pytest.fixture
def bench(tmp_path: Any) -> Any:
    clock = FakeClock()
    cluster = SimulatedCluster(clock)
    cluster.add_namespace(NAMESPACE)
    cluster.add_node(NODE, gpus=4)
    cluster.serve_device_taints()
    with SimulatedApiServer(cluster, folder=tmp_path) as running:
        yield Bench(cluster, running.kubeconfig(), clock, settings(checks={"gpu_lost": Response.DRAIN}))


def publish(bench: Bench, *, driver: str = DRIVER, pool: str = NODE, uuid: str = "GPU-0", generation: int = 1) -> None:
    device = {"name": f"gpu-of-{driver}-{generation}", "attributes": {"uuid": {"string": uuid}}}
    spec = {"driver": driver, "nodeName": NODE, "pool": {"name": pool, "generation": generation}, "devices": [device]}
    bench.cluster.create("resourceslices", {"metadata": {"name": f"{driver}-{pool}-{generation}"}, "spec": spec})


def rules(bench: Bench) -> set[str]:
    return {each["metadata"]["name"] for each in bench.cluster.objects("devicetaintrules")}


def test_a_sick_gpu_is_taken_out_by_a_rule_alone_and_released(bench: Bench) -> None:
    publish(bench, uuid="GPU-0", generation=1)
    publish(bench, uuid="GPU-0", generation=2)
    bench.finds(fatal())
    bench.run(60)
    assert bench.is_confined()
    assert rules(bench) == {f"gpuwatch-{NODE}-gpu-of-{DRIVER}-2"}
    bench.restarted()
    bench.finds()
    bench.run(300)
    assert bench.is_clean()
    assert rules(bench) == set()


class CountedBench(Bench):
    """It counts how often it was asked which groups the API server serves; `forbidden`: it is refused."""

    asked = 0
    forbidden = False

    def _connect(self) -> Transport:
        bench = self

        class Counted(Transport):
            def request(self, call: ApiCall, path: str, **more: Any) -> bytes:
                if call.resource == "resource.k8s.io":
                    bench.asked += 1
                    if bench.forbidden:
                        raise Forbidden(call, "discovery is not for this account")
                return super().request(call, path, **more)

        return Counted(self.kubeconfig)


def test_that_no_rules_are_served_is_found_out_at_rest_and_again_when_they_are(tmp_path: Any) -> None:
    clock = FakeClock()
    cluster = SimulatedCluster(clock)
    cluster.add_namespace(NAMESPACE)
    cluster.add_node(NODE, gpus=4)
    with SimulatedApiServer(cluster, folder=tmp_path) as running:
        bench = CountedBench(cluster, running.kubeconfig(), clock, settings())
        bench.run(10)
        at_rest = bench.asked
        assert at_rest > 0
        bench.finds(fatal(clock.time()))
        bench.run(10)
        assert (bench.is_quarantined(), bench.asked) == (True, at_rest)
        bench.finds()
        bench.run(SERVED_SECONDS)
        cluster.serve_device_taints()
        publish(bench)
        bench.run(SERVED_SECONDS)
        bench.finds(fatal(clock.time()))
        bench.run(10)
        assert bench.is_confined()


def test_where_the_question_is_forbidden_it_is_asked_no_more_often(tmp_path: Any) -> None:
    clock = FakeClock()
    cluster = SimulatedCluster(clock)
    cluster.add_namespace(NAMESPACE)
    cluster.add_node(NODE, gpus=4)
    with SimulatedApiServer(cluster, folder=tmp_path) as running:
        bench = CountedBench(cluster, running.kubeconfig(), clock, settings())
        bench.forbidden = True
        bench.run(SERVED_SECONDS)
    assert 0 < bench.asked <= 3


@pytest.mark.parametrize("lie", [{"driver": "evil.example.com"}, {"pool": "another"}, {"uuid": "GPU-77"}])
def test_a_slice_that_lies_leads_to_no_rule_and_the_node_is_taken(bench: Bench, lie: dict[str, str]) -> None:
    publish(bench, **lie)  # type: ignore[arg-type]
    bench.finds(fatal())
    bench.run(60)
    assert bench.is_quarantined()
    assert rules(bench) == set()


def test_a_rule_of_the_same_name_that_a_person_made_is_never_deleted(bench: Bench) -> None:
    publish(bench)
    name = f"gpuwatch-{NODE}-gpu-of-{DRIVER}-1"
    spec = {"deviceSelector": {"driver": DRIVER, "pool": NODE}, "taint": {"key": "a/b", "effect": "NoSchedule"}}
    bench.cluster.create("devicetaintrules", {"metadata": {"name": name, "labels": MANAGED}, "spec": spec})
    bench.finds(fatal())
    bench.run(120)
    bench.finds()
    bench.run(300)
    assert rules(bench) == {name}
    assert bench.is_clean()
