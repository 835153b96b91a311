"""What fabric, sharing and exporters say where there is nothing to judge, not enough to see, or odd things to read."""

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.diagnose.check import CheckContext, CheckVerdict
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.host.driver_files import DeviceNodes
from gpuwatch.diagnose.host.exporters import Exporter
from gpuwatch.diagnose.host.fabric import Adapter
from gpuwatch.diagnose.host.kernel_modules import Kernel
from gpuwatch.diagnose.host.services import ServiceProcess, Services
from gpuwatch.diagnose.model import CheckStatus, ClusterFacts
from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.finding import Finding, Judgement, Severity
from gpuwatch.model.snapshot import Fabric, Gpu, GpuState, GpuStatus, Identity, Memory, MigInstance, NvLink, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.model.workload import Attribution, DeviceUse, Holder, Workload
from gpuwatch.model.xid import SxidCount
from tests.diagnose.hosts import Host, seen

ROWS = {check.id: check for check in CHECKS if check.id[0] in "FMC"}


def judged(id_: str, **facts: Any) -> CheckVerdict:
    return ROWS[id_].judge(CheckContext(NodeFacts(at=100.0, **facts)))


def services(*processes: str, **fields: Any) -> Services:
    running = tuple(ServiceProcess(pid=i, name=name[:15]) for i, name in enumerate(processes))
    return Services(**{"processes": running, "switches": 0} | fields)


def ethernet(count: int) -> tuple[Adapter, ...]:
    return tuple(Adapter(address=f"0000:1{i}:00.0", driver="mlx5_core", rdma=(f"mlx5_{i}",)) for i in range(count))


PROPRIETARY = Kernel(modules={}, flavor="proprietary", release="6.8.0-45-generic", driver="580.105.08")


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (services(), "no NVSwitch"),
        (services(switches=None), "the PCI bus cannot be read"),
        (services(processes=None, switches=4), "cannot see the host's processes"),
    ],
)
def test_a_fabric_manager_is_asked_for_only_where_it_is_needed_and_could_be_seen(found, message):
    verdict = judged("F01", services=found, kernel=PROPRIETARY)
    assert verdict.result is CheckStatus.SKIP
    assert message in verdict.message


def test_an_old_log_is_no_skew_where_the_package_is_right():
    found = services("nv-fabricmanager", switches=4, fabric_manager="535.183.01", fabric_manager_package="580.105.08")
    assert judged("F01", services=found, kernel=PROPRIETARY).result is CheckStatus.PASS


def test_no_advice_to_align_versions_that_are_not_known():
    found = services("nv-fabricmanager", switches=4)
    assert judged("F01", services=found, kernel=PROPRIETARY).message == "version not known, 4 NVSwitches"
    assert judged("F01", services=found, kernel=Kernel()).result is CheckStatus.PASS


@pytest.mark.parametrize(("count", "result"), [(0, CheckStatus.SKIP), (2, CheckStatus.SKIP), (8, CheckStatus.WARN)])
def test_a_plain_network_is_not_asked_for_rdma(count, result):
    assert judged("F05", services=services(adapters=ethernet(count)), kernel=PROPRIETARY).result is result


def test_other_makers_have_their_own_way_to_gpu_memory():
    efa = (Adapter(address="0000:20:00.0", driver="efa", rdma=("rdmap0",)),)
    assert "driver efa" in judged("F05", services=services(adapters=efa), kernel=PROPRIETARY).message


def test_a_gpu_that_does_not_answer_leaves_the_fabric_of_the_others_judged(tmp_path):
    host = Host(tmp_path)
    host.view = seen([{"do": "lose", "gpu": 5}, {"do": "fabric", "gpu": 3, "state": 2}])
    diagnosis = host.diagnose()
    assert diagnosis.first is not None
    assert diagnosis.of("F02").gpus == (3,)
    assert diagnosis.of("F02").evidence["gpu 5"].startswith("not judged")
    assert diagnosis.of("F03").result is CheckStatus.PASS


def test_without_a_fabric_manager_its_followers_are_blocked(tmp_path):
    host = Host(tmp_path)
    host.remove("proc/1101")
    host.view = seen([{"do": "fabric", "gpu": "all", "state": 2}])
    diagnosis = host.diagnose()
    assert [diagnosis.of(id_).blocked_by for id_ in ("F02", "F03")] == ["F01", "F01"]


def test_a_registration_that_has_just_begun_is_no_failure_to_an_agent():
    gpu = Gpu(identity=Identity(index=0, uuid="GPU-0", pci_bus_id="00000000:1B:00.0"), fabric=Fabric(state=2))
    view = View(snapshot=Snapshot(at=1.0, interval=1.0, gpus=(gpu,)), agent=AgentStatus(version="1", started=0.0))
    assert judged("F02", view=view, agent=True).result is CheckStatus.WARN
    assert judged("F02", view=view).result is CheckStatus.FAIL


@pytest.mark.parametrize("status", [400, 401, 403])
def test_an_exporter_that_needs_credentials_is_not_judged(status):
    page = Exporter(port=9400, status=status, error=f"HTTP status {status}")
    found = judged("C03", exporters=(page,), services=services("dcgm-exporter"))
    assert (found.result, found.message) == (CheckStatus.SKIP, "port 9400 wants TLS or credentials")


def test_a_silent_port_is_not_taken_for_dcgm_exporter():
    assert judged("C03", exporters=(Exporter(port=9400, error="x"),), services=services()).result is CheckStatus.SKIP


LINKS = tuple(
    (NvLink(link=0, active=up, errors=errors),) for up, errors in product((None, True, False), ({}, {"crc": 3}))
)


def odd_gpu(index: int, **fields: Any) -> Gpu:
    named = Identity(index=index, uuid=f"GPU-{index}", pci_bus_id=f"00000000:0{index}:00.0", name=fields.pop("name"))
    memory = Memory(total=fields.pop("total"), used=fields.pop("used"))
    fabric = Fabric(state=fields.pop("state"), status=fields.pop("status"))
    return Gpu(identity=named, memory=memory, fabric=fabric, **fields)


def maybe(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from((None, *values))


ODD_GPUS = st.tuples(
    *(
        st.builds(
            odd_gpu,
            st.just(index),
            name=maybe("NVIDIA GB200"),
            total=maybe(0, 100),
            used=maybe(99),
            state=maybe(0, 1, 2, 3),
            status=maybe(0, 5),
            nvlinks=st.sampled_from(((), *LINKS)),
            mig_enabled=maybe(True, False),
            mig_pending=maybe(True, False),
            mig=st.sampled_from(((), (MigInstance(index=0, uuid="MIG-1", gi=1, ci=0),))),
        )
        for index in range(2)
    )
)
CHECKED = ("mig_pending", "fabric_state", "nvlink_down", "nvlink_errors", "sxid_fatal", "sxid_warning")
FINDINGS = st.builds(
    Finding,
    check=st.sampled_from(CHECKED),
    severity=st.just(Severity.WARNING),
    message=st.just("said"),
    gpu=maybe("GPU-0", "GPU-9"),
)
HOLDERS = tuple(Holder(workload=Workload(pod=name)) for name in "ab")


@st.composite
def views(draw: st.DrawFn) -> View:
    gpus = draw(ODD_GPUS)
    statuses = tuple(GpuStatus(identity=gpu.identity, state=GpuState.FRESH) for gpu in gpus)
    use = DeviceUse(gpu="GPU-0", allocated=draw(maybe(True)), holders=draw(st.sampled_from(((), HOLDERS))))
    return View(
        snapshot=Snapshot(at=1.0, interval=1.0, gpus=gpus, statuses=statuses),
        agent=AgentStatus(version="1", started=0.0),
        judgement=Judgement(findings=tuple(draw(st.lists(FINDINGS, max_size=2)))),
        attribution=Attribution(devices=(use,)),
        sxids=(SxidCount(switch=0, sxid=1, severity="fatal", last=draw(maybe(0.5))),),
    )


NAMES = ("nv-fabricmanager", "nvlsm", "nvidia-imex", "nv-hostengine", "dcgm-exporter", "ncu", "nvidia-cuda-mps-control")
PROCESSES = st.lists(st.sampled_from(NAMES), max_size=3).map(
    lambda names: tuple(ServiceProcess(pid=i, name=name[:15]) for i, name in enumerate(names))
)
ADAPTERS = st.builds(
    Adapter,
    address=st.just("0000:18:00.0"),
    driver=maybe("mlx5_core", "efa"),
    infiniband=st.booleans(),
    rdma=st.sampled_from(((), ("mlx5_0",))),
    manages_switches=st.booleans(),
).map(lambda adapter: (adapter,))
SERVICES = st.builds(
    Services,
    processes=st.none() | PROCESSES,
    sockets=maybe(()),
    units=maybe((), ("nvidia-dcgm.service",)),
    fabric_manager=maybe("1.2"),
    fabric_manager_package=maybe("1.3"),
    switches=maybe(0, 4),
    adapters=st.none() | ADAPTERS,
    network_driver_ready=maybe(True, False),
)
LABELS = st.fixed_dictionaries(
    {},
    optional={
        "nvidia.com/mig.config": st.sampled_from(("all-1g.10gb", "all-disabled", "mine", "")),
        "nvidia.com/mig.config.state": st.sampled_from(("failed", "success", "pending", "")),
        "nvidia.com/mig.strategy": st.sampled_from(("single", "none", "mixed", "?")),
        "nvidia.com/gpu.product": st.just("X-MIG-INVALID"),
        "nvidia.com/gpu.sharing-strategy": st.just("mps"),
    },
)
FACTS = st.builds(
    NodeFacts,
    at=st.just(1.0),
    agent=st.booleans(),
    view=views(),
    earlier=st.none() | views(),
    services=SERVICES,
    kernel=st.builds(
        Kernel, modules=maybe({}), flavor=maybe("open"), release=maybe("?", "5.15.0"), driver=maybe("1.2", "junk")
    ),
    nodes=maybe(DeviceNodes(capabilities={"gpu0/mig/gi1/access": 3, "gpu0/mig/gi2/ci0/access": 4})),
    cluster=st.builds(
        ClusterFacts,
        node=st.builds(NodeObject, name=st.just("n"), uid=st.just("u"), resource_version=st.just("1"), labels=LABELS),
    ),
    exporters=st.builds(
        Exporter,
        port=st.just(9400),
        kind=st.sampled_from(("other", "dcgm-exporter")),
        status=maybe(200, 401),
        families=st.integers(0, 1),
        profiling=st.booleans(),
        error=maybe("x"),
    ).map(lambda exporter: (exporter, exporter)),
)


@settings(deadline=None)
@given(FACTS, maybe(frozenset(), frozenset({0})))
def test_whatever_is_read_every_check_has_an_answer_about_the_gpus_asked_for(facts, selected):
    case = CheckContext(facts, selected=selected)
    for check in ROWS.values():
        verdict = check.judge(case)
        assert verdict.message, check.id
        assert all(case.selects(index) for index in verdict.gpus), check.id
