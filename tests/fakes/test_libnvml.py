"""The fake libnvidia-ml, seen by real clients in processes of their own: pynvml, nvitop, nvitop-exporter."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpuwatch.model.errors import GpuwatchError
from tests.fakes.libnvml import FakeDriver, FakeMig, FakeProcess, FakeVgpu, build, layout, library
from tests.ports import free_port
from tests.waiting import BOUND_SECONDS, until

CLIENT = """
import ctypes, json, sys, pynvml as n
print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    try:
        answer = eval(line)
    except n.NVMLError as error:
        answer = type(error).__name__
    print(json.dumps(answer, default=str), flush=True)
"""
GPU = "n.nvmlDeviceGetHandleByIndex({})"
PYNVML_SYMBOLS = sorted(set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"', Path(pynvml.__file__).read_text())))


class Client:
    """A process with pynvml on the fake library: sends it expressions, gets values or names of NVML errors."""

    def __init__(self, driver: FakeDriver, *, init: bool = True) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", CLIENT],
            env={**os.environ, **driver.env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.read() == "ready"
        if init:
            assert self.ask("n.nvmlInit()") is None

    def send(self, expression: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(expression + "\n")
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def ask(self, expression: str) -> Any:
        self.send(expression)
        return self.read()

    def gpu(self, function: str, gpu: int = 0, *arguments: Any) -> Any:
        return self.ask(f"n.{function}({', '.join([GPU.format(gpu), *map(repr, arguments)])})")

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[FakeDriver]:
    with FakeDriver(tmp_path) as fake:
        yield fake


@pytest.fixture
def connect() -> Iterator[Callable[..., Client]]:
    clients: list[Client] = []

    def start(driver: FakeDriver, **options: Any) -> Client:
        clients.append(Client(driver, **options))
        return clients[-1]

    yield start
    for client in clients:
        client.close()


# ---- symbols ----


@pytest.mark.parametrize("profile", library.PROFILES)
def test_profile_exports_its_symbols_only(profile: str, tmp_path: Path, connect: Callable[..., Client]) -> None:
    with FakeDriver(tmp_path, profile=profile) as driver:
        client = connect(driver)
        names = sorted({function.name for function in library.functions()} | {"nvmlErrorString"})
        exported = client.ask(f"[s for s in {names} if hasattr(ctypes.CDLL('libnvidia-ml.so.1'), s)]")
        assert set(exported) == library.symbols(profile)
        assert client.ask("n.nvmlDeviceGetCount()") == 8


def test_all_has_every_symbol_of_pynvml_and_drivers_grow() -> None:
    assert len(PYNVML_SYMBOLS) > 400
    assert set(PYNVML_SYMBOLS) - {"nvmlGetFunctionPointer"} <= library.symbols("all")
    profiles = [library.symbols(profile) for profile in library.PROFILES]
    assert all(older < newer for older, newer in pairwise(profiles))


@pytest.mark.parametrize(
    ("profile", "answer"), [("535", "NVMLError_FunctionNotFound"), ("550", "NVMLError_FunctionNotFound"), ("580", 41)]
)
def test_temperature_v_is_missing_on_older_drivers(
    profile: str, answer: Any, tmp_path: Path, connect: Callable[..., Client]
) -> None:
    with FakeDriver(tmp_path, profile=profile) as driver:
        client = connect(driver)
        assert client.gpu("nvmlDeviceGetTemperatureV", 0, 0) == answer
        assert client.gpu("nvmlDeviceGetTemperature", 0, 0) == 41


def test_older_drivers_know_no_recovery_action(tmp_path: Path, connect: Callable[..., Client]) -> None:
    with FakeDriver(tmp_path, profile="550") as driver:
        client = connect(driver)
        assert client.ask(f"n.nvmlDeviceGetFieldValues({GPU.format(0)}, [230])[0].nvmlReturn") == 3
        assert client.gpu("nvmlDeviceGetSupportedEventTypes") & 0xC000 == 0


def test_every_value_of_the_layout_is_answered_by_some_function() -> None:
    code = "".join(path.read_text() for path in Path(library.__file__).parent.glob("src/*.c"))
    assert [name for name in layout.GPU_VALUES if f"->{name}" not in code and f".{name}" not in code] == []


RACERS = 4
COMPILER = f"""#!{sys.executable} -S
import os, sys, time
begun, output = os.path.dirname(sys.argv[0]) + "/begun", sys.argv[sys.argv.index("-o") + 1]
with open(begun, "a") as file:
    file.write("x")
while os.path.getsize(begun) < {RACERS}:
    time.sleep(0.01)
with open(output, "w") as file:
    file.write("built")
"""
"""Ends when all racers compile, so that they race in any case."""


def test_build_is_kept_and_safe_to_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a real compiler makes of it is what all other tests load."""
    (tmp_path / "cc").write_text(COMPILER)
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    with ThreadPoolExecutor(RACERS) as pool:
        paths = set(pool.map(lambda _: build("550", tmp_path / "cache"), range(RACERS)))
    assert len(paths) == 1
    path = paths.pop()
    assert (path.name, path.read_text()) == ("libnvidia-ml.so.1", "built")
    assert build("550", tmp_path / "cache") == path
    assert (tmp_path / "begun").read_text() == "x" * RACERS
    assert list(tmp_path.glob("cache/*/*")) == [path], "what they worked in is gone"


def test_mistakes_are_refused(driver: FakeDriver, tmp_path: Path) -> None:
    with pytest.raises(GpuwatchError, match="470"):
        build("470")
    with pytest.raises(ValueError, match="nvmlDeviceGetNothing"):
        driver.hang("nvmlDeviceGetNothing")
    with pytest.raises(AttributeError, match="temprature"):
        driver.set(0, temprature=1)
    with pytest.raises(IndexError):
        driver.set(8, temperature=1)
    with pytest.raises(ValueError, match="17"):
        FakeDriver(tmp_path / "many", gpus=17)


# ---- values ----


def test_values_change_at_once(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    assert client.gpu("nvmlDeviceGetPowerUsage", 3) == driver.get(3, "power_average_mw")
    driver.set(3, power_mw=650_000, temperature=None, uuid="GPU-new", clock_mhz=(1, 2, 3, None))
    assert client.gpu("nvmlDeviceGetPowerUsage", 3) == 650_000
    assert client.gpu("nvmlDeviceGetTemperature", 3, 0) == "NVMLError_NotSupported"
    assert client.gpu("nvmlDeviceGetUUID", 3) == "GPU-new"
    assert [client.gpu("nvmlDeviceGetClockInfo", 3, domain) for domain in range(4)] == [
        1,
        2,
        3,
        "NVMLError_NotSupported",
    ]
    assert driver.get(3, "clock_mhz") == (1, 2, 3, None)
    assert client.ask("n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID('GPU-new'))") == 3
    address = client.ask(f"n.nvmlDeviceGetPciInfo({GPU.format(5)}).busId")
    assert client.ask(f"n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByPciBusId('{address}'))") == 5


def test_sixteen_gpus_and_none(tmp_path: Path, connect: Callable[..., Client]) -> None:
    for gpus in (0, 16):
        with FakeDriver(tmp_path / str(gpus), gpus=gpus) as driver:
            client = connect(driver)
            uuids = client.ask(
                "[n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByIndex(i)) for i in range(n.nvmlDeviceGetCount())]"
            )
            assert len(set(uuids)) == gpus


@pytest.mark.parametrize("model", ["H100", "A100", "T4"])
def test_models_differ_in_what_they_support(model: str, tmp_path: Path, connect: Callable[..., Client]) -> None:
    with FakeDriver(tmp_path, gpus=1, model=model) as driver:
        client = connect(driver)
        gpm = client.ask(f"n.nvmlGpmQueryDeviceSupport({GPU.format(0)}).isSupportedDevice")
        pages = client.gpu("nvmlDeviceGetRetiredPagesPendingStatus")
        assert bool(gpm) == (model == "H100")
        assert pages == (0 if model == "T4" else "NVMLError_NotSupported")


def test_energy_is_power_over_time(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    driver.set(0, power_mw=0)
    start = client.gpu("nvmlDeviceGetTotalEnergyConsumption")
    assert client.gpu("nvmlDeviceGetTotalEnergyConsumption") == start
    before = time.monotonic()
    driver.set(0, power_mw=1_000_000_000)
    first = client.gpu("nvmlDeviceGetTotalEnergyConsumption")
    assert 0 < first - start <= (time.monotonic() - before) * 1_000_000_000
    driver.set(0, power_mw=0)
    assert client.gpu("nvmlDeviceGetTotalEnergyConsumption") >= first


def test_field_values_answer_each_for_itself(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    driver.set(0, recovery_action=2, remapped_uncorrectable=3, shutdown_tlimit=-8)
    driver.set_ecc(0, 2, 5, uncorrected=True, aggregate=False)
    driver.set_link(0, 4, tx_kib=70, errors=(1, 0, 9, 0, 0))
    driver.set_link(0, 5, tx_kib=7)
    driver.set_field(0, 202, 11, kind="ull")
    driver.set_field(0, 82, error=21)
    fields = [230, 143, 193, 4, (138, 4), (138, 0xFFFFFFFF), 38, 202, 82, 90000]
    answers = client.ask(
        f"[(v.nvmlReturn, v.value.sllVal if v.valueType == 3 else v.value.siVal)"
        f" for v in n.nvmlDeviceGetFieldValues({GPU.format(0)}, {fields})]"
    )
    assert answers == [[0, 2], [0, 3], [0, -8], [0, 5], [0, 70], [0, 77], [0, 9], [0, 11], [21, 0], [3, 0]]


def test_dictated_field_grows(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    driver.set_field(None, 197, 100, rate=1e9)
    read = f"n.nvmlDeviceGetFieldValues({GPU.format(7)}, [197])[0].value.ullVal"
    assert 100 < client.ask(read) < client.ask(read)


def test_ecc_counters_and_sram_status(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    driver.set_ecc(0, 2, 5, uncorrected=False, aggregate=True)
    driver.set_ecc(0, 7, 2, uncorrected=False, aggregate=True)
    assert client.gpu("nvmlDeviceGetTotalEccErrors", 0, 0, 1) == 7
    assert client.gpu("nvmlDeviceGetMemoryErrorCounter", 0, 0, 1, 7) == 2
    assert client.gpu("nvmlDeviceGetMemoryErrorCounter", 0, 0, 1, 0) == "NVMLError_NotSupported"
    driver.set(0, ecc_mode=0)
    assert client.gpu("nvmlDeviceGetTotalEccErrors", 0, 0, 1) == "NVMLError_NotSupported"


def test_samples_hold_peaks_between_reads(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    since = time.time_ns() // 1000
    driver.push_sample(0, 0, 1, timestamp_us=since)
    driver.push_sample(0, 0, 690_000, timestamp_us=since + 10)
    driver.push_sample(0, 1, 55, timestamp_us=since + 10)
    read = f"[s.sampleValue.uiVal for s in n.nvmlDeviceGetSamples({GPU.format(0)}, 0, {since})[1]]"
    assert client.ask(read) == [690_000, driver.get(0, "power_mw")]


# ---- tenants ----


def test_processes_and_their_utilization(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    processes = [
        FakeProcess(pid=100, memory=5 << 30, sm=80, mem=20, name="train"),
        FakeProcess(pid=101, kind=4, memory=None),
        FakeProcess(pid=102, kind=2, sm=1, seen_us=1_000_000),
    ]
    driver.set_processes(1, processes)
    lists = [
        client.ask(f"[(p.pid, p.usedGpuMemory) for p in n.nvmlDeviceGet{kind}RunningProcesses({GPU.format(1)})]")
        for kind in ("Compute", "Graphics", "MPSCompute")
    ]
    assert lists == [[[100, 5 << 30]], [[102, 0]], [[101, None]]]
    read = f"[(s.pid, s.smUtil, s.memUtil) for s in n.nvmlDeviceGetProcessUtilization({GPU.format(1)}, {{}})]"
    assert client.ask(read.format(0)) == [[100, 80, 20], [102, 1, 0]]
    assert client.ask(read.format(1_000_000)) == [[100, 80, 20]]
    assert client.ask("n.nvmlSystemGetProcessName(100)") == "train"
    driver.set_processes(1, [])
    assert client.gpu("nvmlDeviceGetComputeRunningProcesses", 1) == []
    with pytest.raises(ValueError, match="65"):
        driver.set_processes(1, [FakeProcess(pid=pid) for pid in range(65)])


def test_mig_devices(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    driver.set_mig(2, [FakeMig(gi=1, profile="3g.40gb", memory_used=1 << 30), FakeMig(gi=9, uuid="MIG-x")])
    driver.set_processes(2, [FakeProcess(pid=7, gi=9, ci=0), FakeProcess(pid=8, gi=1, ci=0)])
    mig = f"n.nvmlDeviceGetMigDeviceHandleByIndex({GPU.format(2)}, {{}})"
    assert client.gpu("nvmlDeviceGetMigMode", 2) == [1, 1]
    assert [client.ask(f"n.nvmlDeviceGetGpuInstanceId({mig.format(i)})") for i in range(3)] == [
        1,
        9,
        "NVMLError_NotFound",
    ]
    assert client.ask(f"n.nvmlDeviceGetName({mig.format(0)})").endswith("MIG 3g.40gb")
    assert client.ask(f"n.nvmlDeviceGetMemoryInfo({mig.format(0)}).used") == 1 << 30
    assert client.ask(f"n.nvmlDeviceGetAttributes({mig.format(1)}).gpuInstanceSliceCount") == 1
    assert client.ask(f"[p.pid for p in n.nvmlDeviceGetComputeRunningProcesses({mig.format(1)})]") == [7]
    assert client.ask("n.nvmlDeviceGetUUID(n.nvmlDeviceGetHandleByUUID('MIG-x'))") == "MIG-x"
    info = f"n.nvmlGpuInstanceGetInfo(n.nvmlDeviceGetGpuInstanceById({GPU.format(2)}, {{}}))"
    place = "[(i.profileId, i.placement.start, i.placement.size) for i in [{}]]"
    assert client.ask(place.format(info.format(1))) == [[9, 0, 4]]
    assert client.ask(place.format(info.format(9))) == [[19, 4, 1]]
    assert client.ask(f"n.nvmlDeviceGetPowerUsage({mig.format(0)})") == "NVMLError_NotSupported"
    assert client.gpu("nvmlDeviceGetUtilizationRates", 2) == "NVMLError_NotSupported"
    driver.set_mig(2, None)
    assert client.ask(mig.format(0)) == "NVMLError_NotSupported"


def test_what_nvidias_device_plugin_asks(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    """It takes a GPU with room for MIG devices for one in MIG mode, and asks each MIG device for its instances."""
    client = connect(driver)
    gpu = GPU.format(0)
    assert client.ask(f"n.nvmlDeviceGetMaxMigDeviceCount({gpu})") == 0, "0 if MIG is disabled (nvml.h)"
    driver.set_mig(0, [FakeMig(gi=1, profile="3g.40gb"), FakeMig(gi=9)])
    assert client.ask(f"n.nvmlDeviceGetMaxMigDeviceCount({gpu})") == 7
    instance = f"n.nvmlDeviceGetGpuInstanceById({gpu}, 9)"
    assert client.ask(f"n.nvmlGpuInstanceGetInfo({instance}).id") == 9
    assert (
        client.ask(f"n.nvmlComputeInstanceGetInfo_v2(n.nvmlGpuInstanceGetComputeInstanceById({instance}, 0)).id") == 0
    )
    assert client.ask(f"n.nvmlGpuInstanceGetComputeInstanceById({instance}, 5)") == "NVMLError_NotFound"
    profiles = [client.ask(f"n.nvmlDeviceGetGpuInstanceProfileInfo({gpu}, {number}, 1).id") for number in (0, 2, 4, 5)]
    assert profiles == [19, 9, 0, "NVMLError_NotSupported"]
    assert client.ask(f"n.nvmlGpuInstanceGetInfo({instance}).profileId") == profiles[0]
    compute = f"n.nvmlGpuInstanceGetComputeInstanceProfileInfo({instance}, {{}}, 0, 1).id"
    assert [client.ask(compute.format(number)) for number in (0, 1)] == [0, "NVMLError_NotSupported"]
    levels = [client.ask(f"n.nvmlDeviceGetTopologyCommonAncestor({gpu}, {GPU.format(i)})") for i in (0, 1, 2)]
    assert levels == [0, 40, 40]
    assert client.ask(f"n.nvmlDeviceGetUtilizationRates({GPU.format(2)}).gpu") == 0


def test_what_feature_discovery_and_the_container_toolkit_ask(
    driver: FakeDriver, connect: Callable[..., Client]
) -> None:
    """gpu-feature-discovery makes labels of attributes of MIG devices; `nvidia-ctk cdi generate` finds them by UUID."""
    client = connect(driver)
    driver.set_mig(1, [FakeMig(gi=1, profile="1g.10gb"), FakeMig(gi=2, profile="2g.20gb")])
    gpu = GPU.format(1)
    mig = f"n.nvmlDeviceGetMigDeviceHandleByIndex({gpu}, 1)"
    uuid = client.ask(f"n.nvmlDeviceGetUUID({mig})")
    assert client.ask(f"n.nvmlDeviceGetGpuInstanceId(n.nvmlDeviceGetHandleByUUID({uuid!r}))") == 2
    assert [client.ask(f"n.nvmlDeviceIsMigDeviceHandle({each}).value") for each in (gpu, mig)] == [0, 1]
    parent = f"n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle({mig})"
    assert client.ask(f"n.nvmlDeviceGetMinorNumber({parent})") == 1
    attributes = f"n.nvmlDeviceGetAttributes_v2({mig})"
    counts = ("multiprocessorCount", "gpuInstanceSliceCount", "computeInstanceSliceCount", "sharedCopyEngineCount")
    assert [client.ask(f"{attributes}.{each}") for each in counts] == [32, 2, 2, 2]


GPM = """(lambda older, newer, request: (
    n.nvmlGpm{get}SampleGet({arguments}, older), n.nvmlGpm{get}SampleGet({arguments}, newer),
    [setattr(request, k, v) for k, v in dict(version=n.NVML_GPM_METRICS_GET_VERSION, numMetrics=2, sample1=older,
     sample2=newer).items()], setattr(request.metrics[0], 'metricId', 2), setattr(request.metrics[1], 'metricId', 17),
    n.nvmlGpmMetricsGet(request), [(m.nvmlReturn, m.value) for m in request.metrics[:1]], request.metrics[1].nvmlReturn,
))(n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc(), n.c_nvmlGpmMetricsGet_t())[-2:]""".replace("\n", "")


def test_gpm_of_gpus_and_instances(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    driver.set_gpm(0, {2: 62.5})
    assert client.ask(GPM.format(get="", arguments=GPU.format(0))) == [[[0, 62.5]], 3]
    driver.set_mig(0, [FakeMig(gi=4)])
    driver.set_gpm(0, {2: 12.5}, gi=4)
    assert client.ask(GPM.format(get="Mig", arguments=GPU.format(0) + ", 4")) == [[[0, 12.5]], 3]


def test_vgpus_of_a_hypervisor(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    assert client.gpu("nvmlDeviceGetActiveVgpus", 6) == "NVMLError_NotSupported"
    driver.set_vgpus(6, [FakeVgpu(instance=40, vm="vm-1", uuid="v-1", memory_used=1 << 30, utilization=33)])
    assert client.gpu("nvmlDeviceGetActiveVgpus", 6) == [40]
    assert client.ask("n.nvmlVgpuInstanceGetVmID(40)[0].decode()") == "vm-1"
    assert client.ask("n.nvmlVgpuInstanceGetFbUsage(40)") == 1 << 30
    assert client.ask("n.nvmlVgpuTypeGetName(n.nvmlVgpuInstanceGetType(40))") == "GRID H100-10C"
    assert client.ask("n.nvmlVgpuInstanceGetLicenseInfo_v2(40).isLicensed") == 1
    assert client.ask(f"n.nvmlDeviceGetVgpuUtilization({GPU.format(6)}, 0)[0].smUtil.uiVal") == 33


# ---- events ----


def test_event_reaches_a_waiting_client(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    handle = GPU.format(5)
    client.ask("globals().update(events=n.nvmlEventSetCreate(), time=__import__('time'))")
    assert client.ask(f"n.nvmlDeviceRegisterEvents({handle}, n.nvmlEventTypeXidCriticalError | 0x8000, events)") is None
    wait = (
        "(lambda e: (n.nvmlDeviceGetIndex(e.device), e.eventType, e.eventData, e.gpuInstanceId, time.monotonic()))"
        "(n.nvmlEventSetWait_v2(events, {}))"
    )
    latencies = []
    for push, expected in [
        (lambda: driver.xid(5, 79), [5, 8, 79, 0xFFFFFFFF]),
        (lambda: driver.push_event(5, 0x8000, 2, gi=3, ci=0), [5, 0x8000, 2, 3]),
    ] * 4:
        client.send(wait.format(90_000))
        until(lambda: driver.in_flight("nvmlEventSetWait") == 1)
        driver.xid(4, 13)  # nobody asked for GPU 4
        pushed = time.monotonic()
        push()
        *answer, seen = client.read()
        assert answer == expected
        latencies.append(seen - pushed)
    assert min(latencies) < 0.050, "on a busy machine some come late, not all of them"
    assert client.ask(wait.format(1)) == "NVMLError_Timeout"


def test_events_queue_while_nobody_waits(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    driver.xid(0, 1)  # from before the set
    client.ask("globals().update(events=n.nvmlEventSetCreate())")
    client.ask(f"n.nvmlDeviceRegisterEvents({GPU.format(0)}, 8, events)")
    for code in (48, 63, 94):
        driver.xid(0, code)
    driver.lose(0)
    assert [client.ask("n.nvmlEventSetWait_v2(events, 0).eventData") for _ in range(4)] == [
        48,
        63,
        94,
        "NVMLError_Timeout",
    ]


# ---- misbehaviour ----


def test_hang_stops_one_call_of_one_gpu_until_cleared(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    hung, well = connect(driver), connect(driver)
    driver.hang("nvmlDeviceGetPowerUsage", gpu=3)
    hung.send(f"n.nvmlDeviceGetPowerUsage({GPU.format(3)})")
    until(lambda: driver.in_flight("nvmlDeviceGetPowerUsage") == 1)
    assert well.gpu("nvmlDeviceGetPowerUsage", 2) == well.gpu("nvmlDeviceGetPowerUsage", 4)
    assert well.gpu("nvmlDeviceGetTemperature", 3, 0) == 41
    driver.clear("nvmlDeviceGetPowerUsage", gpu=3)
    assert hung.read() == driver.get(3, "power_average_mw")
    assert driver.in_flight("nvmlDeviceGetPowerUsage") == 0


def test_hang_of_everything_holds_init_too(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver, init=False)
    driver.hang()
    client.send("n.nvmlInit()")
    until(lambda: driver.in_flight("nvmlInit") == 1)
    driver.clear()
    assert client.read() is None


def test_crash_kills_one_process_only_once(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    victim = connect(driver)
    driver.crash("nvmlDeviceGetUtilizationRates", gpu=1)
    victim.send(f"n.nvmlDeviceGetUtilizationRates({GPU.format(0)}).gpu")
    assert victim.read() == 0
    victim.send(f"n.nvmlDeviceGetUtilizationRates({GPU.format(1)}).gpu")
    assert victim.process.wait(BOUND_SECONDS) == -signal.SIGSEGV
    assert connect(driver).ask(f"n.nvmlDeviceGetUtilizationRates({GPU.format(1)}).gpu") == 0


def test_delay_and_error(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    driver.delay(0.05, "nvmlDeviceGetName", gpu=0)
    start = time.monotonic()
    assert client.gpu("nvmlDeviceGetName") == driver.get(0, "name")
    assert time.monotonic() - start >= 0.05
    driver.error(999, "nvmlDeviceGetName", gpu=0)
    assert client.gpu("nvmlDeviceGetName") == "NVMLError_Unknown"
    assert client.gpu("nvmlDeviceGetName", 1) == driver.get(1, "name")
    driver.error(4, "*")
    assert client.gpu("nvmlDeviceGetSerial", 1) == "NVMLError_NoPermission"
    driver.clear()
    assert client.gpu("nvmlDeviceGetName") == driver.get(0, "name")


def test_lost_gpu_answers_nothing_and_comes_back(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    client.ask(f"globals().update(held={GPU.format(3)})")
    driver.lose(3)
    assert client.ask("n.nvmlDeviceGetPowerUsage(held)") == "NVMLError_GpuIsLost"
    assert client.ask(GPU.format(3)) == "NVMLError_GpuIsLost"
    assert client.ask(f"n.nvmlDeviceGetHandleByUUID({driver.get(3, 'uuid')!r})") == "NVMLError_GpuIsLost"
    assert client.ask("n.nvmlDeviceGetCount()") == 8
    driver.restore(3)
    assert client.ask("n.nvmlDeviceGetPowerUsage(held)") == driver.get(3, "power_average_mw")


def test_removed_gpu_is_gone_at_the_next_init(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    driver.remove(3)
    assert client.gpu("nvmlDeviceGetUUID", 3) == "NVMLError_GpuIsLost"
    client.ask("n.nvmlShutdown()")
    assert client.ask("n.nvmlDeviceGetCount()") == "NVMLError_Uninitialized"
    client.ask("n.nvmlInit()")
    assert client.ask("n.nvmlDeviceGetCount()") == 7
    assert client.gpu("nvmlDeviceGetUUID", 3) == driver.get(4, "uuid")


def test_reload_ends_old_processes_only(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    old = connect(driver)
    old.ask("globals().update(events=n.nvmlEventSetCreate())")
    old.send("n.nvmlEventSetWait_v2(events, 60000)")
    until(lambda: driver.in_flight("nvmlEventSetWait") == 1)
    driver.reload("590.48.01")
    assert old.read() == "NVMLError_Uninitialized"
    assert old.gpu("nvmlDeviceGetName") == "NVMLError_Uninitialized"
    assert old.ask("n.nvmlInit()") == "NVMLError_LibRmVersionMismatch"
    assert connect(driver).ask("n.nvmlSystemGetDriverVersion()") == "590.48.01"


def test_without_a_control_file_there_is_no_driver(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    driver.path.unlink()
    client = connect(driver, init=False)
    assert client.ask("n.nvmlInit()") == "NVMLError_DriverNotLoaded"


def test_calls_are_counted_setters_too(driver: FakeDriver, connect: Callable[..., Client]) -> None:
    client = connect(driver)
    for _ in range(3):
        client.gpu("nvmlDeviceGetName")
    assert client.gpu("nvmlDeviceSetPowerManagementLimit", 0, 350_000) is None
    assert client.gpu("nvmlDeviceSetPowerManagementLimit", 0, 1) == "NVMLError_InvalidArgument"
    assert client.gpu("nvmlDeviceSetGpuLockedClocks", 0, 210, 1200) is None
    assert (driver.get(0, "power_limit_mw"), driver.get(0, "locked_max_mhz")) == (350_000, 1200)
    setters = {name: count for name, count in driver.called().items() if "Set" in name}
    assert setters == {"nvmlDeviceSetPowerManagementLimit": 2, "nvmlDeviceSetGpuLockedClocks": 1}
    assert driver.calls("nvmlDeviceGetName") == 3
    assert driver.calls() == sum(driver.called().values())
    driver.reset_calls()
    assert driver.calls() == 0


# ---- other people's clients ----


def test_nvitop_shows_eight_gpus(driver: FakeDriver) -> None:
    driver.set(6, temperature=77)
    done = subprocess.run(
        [sys.executable, "-m", "nvitop", "-1"],
        env={**os.environ, **driver.env, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("H100 80GB HBM3") == 8
    assert done.stdout.count("77C") == 1


def test_nvitop_exporter_answers_with_eight_gpus(driver: FakeDriver) -> None:
    driver.set(6, power_mw=512_000)
    port = free_port()
    command = [sys.executable, "-m", "nvitop_exporter", "--bind-address", "127.0.0.1", "--port", str(port)]
    exporter = subprocess.Popen(
        command, env={**os.environ, **driver.env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def scrape() -> list[str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=BOUND_SECONDS) as answer:
                return re.findall(r"^(gpu_power_usage\S*\{.*)$", answer.read().decode(), re.MULTILINE)
        except OSError:
            return []

    try:
        series = until(lambda: (found := scrape()) and len(found) == 8 and found)
        assert sum(float(line.rsplit(" ", 1)[1]) == 512.0 for line in series) == 1
    finally:
        exporter.kill()
        exporter.wait()
