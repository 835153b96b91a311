"""The parts of the hardware campaign, on the fake driver and the fake CUDA: none of these tests needs a GPU."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pynvml
import pytest

from gpuwatch.model.snapshot import Clocks, Gpu, Identity
from tests.fakes.libcuda import FakeCuda
from tests.fakes.libnvml import FakeDriver
from tests.fakes.libnvml.library import functions
from tests.fakes.nvml_child import run
from tests.gpu.campaign.activity import LOADS, expectation
from tests.gpu.campaign.bootstrap import fits
from tests.gpu.campaign.guard import LOG, allowed
from tests.gpu.campaign.kernels import KERNELS
from tests.gpu.campaign.report import Findings, StageResult, write
from tests.gpu.campaign.smi import compare, dump_readings, flat
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
DUMP = ROOT / "tests/captures/h100__590.48.01.txt"
CHANGING = ("Set", "Reset", "Clear", "Create", "Destroy", "Freeze", "Remove", "Modify", "Update", "Activate", "Write")
FINE = {"nvmlEventSetCreate", "nvmlSystemEventSetCreate"}


def environment(driver: FakeDriver, cuda: FakeCuda) -> dict[str, str]:
    """Both fakes where the loader looks, as the campaign finds the real ones."""
    folders = f"{driver.library.parent}:{cuda.library.parent}"
    return {**os.environ, **driver.env, **cuda.env, "LD_LIBRARY_PATH": folders, "PYTHONPATH": str(ROOT)}


def test_no_function_that_changes_a_gpu_is_allowed() -> None:
    names = [function.name for function in functions()]
    verbs = [name.removeprefix("nvml").replace("EventSet", "") for name in names]
    changing = {name for name, verb in zip(names, verbs, strict=True) if any(word in verb for word in CHANGING)}
    reading = {name for name in changing if "Get" in name}  # of what was set, created or cleared
    assert len(changing - reading) > 75
    assert {name for name in changing - reading - FINE if allowed(name)} == set()
    assert {name for name in names if "Get" in name and "GetSet" not in name and not allowed(name)} <= {
        "nvmlDevicePerfMetricsGetSamples_v1",
        "nvmlDeviceWorkloadPowerProfileGetCurrentProfiles",
        "nvmlDeviceWorkloadPowerProfileGetProfilesInfo",
    }


def test_a_guarded_pynvml_reads_and_sets_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appended to pynvml itself, in a process of its own: no setter gets to the library."""
    guarded = tmp_path / "pynvml.py"
    guarded.write_text(
        Path(pynvml.__file__).read_text() + "\nfrom tests.gpu.campaign.guard import read_only\nread_only(globals())\n"
    )
    program = (
        "import pynvml as p; p.nvmlInit(); h = p.nvmlDeviceGetHandleByIndex(0); print(p.nvmlDeviceGetPowerUsage(h))\n"
        "for name, *values in (('SetPowerManagementLimit', 300000), ('ResetGpuLockedClocks',)):\n"
        "    try: getattr(p, 'nvmlDevice' + name)(h, *values)\n"
        "    except p.NVMLError as error: print(error.value)\n"
    )
    with FakeDriver(tmp_path / "driver", gpus=1) as driver:
        env = {**os.environ, **driver.env, "PYTHONPATH": f"{tmp_path}:{ROOT}", LOG: str(tmp_path / "refused")}
        done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True)
        assert done.stdout.split() == [str(driver.get(0, "power_average_mw")), "4", "4"]
        assert driver.sets() == ()
        assert driver.calls("nvmlDeviceSetPowerManagementLimit") == 0
    names = [line.split()[0] for line in (tmp_path / "refused").read_text().splitlines()]
    assert names == ["nvmlDeviceSetPowerManagementLimit", "nvmlDeviceResetGpuLockedClocks"]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_86", "sm_89", "sm_90", "sm_90a"])
def test_nvidias_assembler_takes_the_kernels(tmp_path: Path, architecture: str) -> None:
    """Without spilled registers: what is spilled would be traffic that nobody counted."""
    folders = (
        (importlib.util.find_spec("nvidia").submodule_search_locations or ())
        if importlib.util.find_spec("nvidia")
        else ()
    )
    found = [path for folder in folders for path in Path(folder).glob("cuda_nvcc/bin/ptxas")]
    assert found, "pip install nvidia-cuda-nvcc-cu12==12.4.131"
    for text in {kernel.ptx for kernel in KERNELS.values() if ("sm_90a" in kernel.ptx) <= (architecture == "sm_90a")}:
        (tmp_path / "kernel.ptx").write_text(text)
        command = [found[0], "-v", "-arch", architecture, tmp_path / "kernel.ptx", "-o", tmp_path / "kernel.cubin"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        spills = [line for line in done.stderr.splitlines() if "spill" in line]
        assert spills
        assert all("0 bytes spill stores, 0 bytes spill loads" in line for line in spills)


@pytest.mark.parametrize("name", KERNELS)
def test_a_load_works_reports_and_returns_everything(tmp_path: Path, name: str) -> None:
    uuid = "GPU-00000000-5e4d-4c3b-2a19-000000000000"
    with FakeDriver(tmp_path / "driver", gpus=1) as driver, FakeCuda(tmp_path / "cuda", [uuid]) as cuda:
        env = environment(driver, cuda) | {"CUDA_VISIBLE_DEVICES": uuid}
        command = [sys.executable, "-m", "tests.gpu.campaign.load", name, "60", "1"]
        log = tmp_path / "said"
        with (
            log.open("wb") as output,
            subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=output) as process,
        ):
            try:
                until(lambda: log.read_text().count('"work"') >= 3, f"work of {name}")
            finally:
                process.send_signal(signal.SIGTERM)
        assert process.returncode == 0
        said = [json.loads(line) for line in log.read_text().splitlines()]
        assert [message["event"] for message in (said[0], said[-1])] == ["ready", "end"]
        work = [message for message in said if message["event"] == "work"]
        done = "bytes" if KERNELS[name].bytes else "flops"
        assert work[-1][done] > work[0][done] > 0
        assert (cuda.misuses(), cuda.leaks()) == ([], [])


def test_a_load_ends_when_its_parent_does(tmp_path: Path) -> None:
    uuid = "GPU-00000000-5e4d-4c3b-2a19-000000000000"
    with FakeDriver(tmp_path / "driver", gpus=1) as driver, FakeCuda(tmp_path / "cuda", [uuid]) as cuda:
        env = environment(driver, cuda) | {"CUDA_VISIBLE_DEVICES": uuid}
        command = [sys.executable, "-m", "tests.gpu.campaign.load", "fp32", "600", "1"]
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 0
        assert json.loads(done.stdout.splitlines()[-1])["event"] == "end"


def test_what_is_expected_of_an_h200_follows_from_its_data_sheet() -> None:
    """67 TFLOP/s of single precision, 989 of half precision on tensor cores, 4.8 TB/s: each is full activity."""
    identity = Identity(index=0, uuid="GPU-0", pci_bus_id="", compute_capability="9.0", memory_bus_width=6144)
    gpu = Gpu(identity=identity, clocks=Clocks(sm=1.83e9, memory=3.125e9))
    for kernel, rates, activity in (
        ("fp32", (61.8e12, 0), "fp32"),
        ("wgmma", (989e12, 0), "tensor"),
        ("copy", (0, 4.8e12), "dram"),
    ):
        row = next(row for row in LOADS if row.kernel == kernel)
        work = {"busy": 1.0, "flops": rates[0], "bytes": rates[1]}
        low, high = expectation(row, work, [gpu], {"processors": 132})[activity]
        assert (low + 0.08, high) == (pytest.approx(1.0, abs=0.01), pytest.approx(1.0))
    half = next(row for row in LOADS if row.share == 0.5)
    low, high = expectation(half, {"busy": 1.0, "flops": 30.9e12, "bytes": 0}, [gpu], {"processors": 132})["sm"]
    assert low < 0.5 < high < 0.6


def test_a_dump_agrees_with_itself_and_a_wrong_value_differs(tmp_path: Path) -> None:
    (reading,) = dump_readings(DUMP).values()
    values = flat(reading)
    findings = Findings(tmp_path / "same.jsonl")
    compare(findings, "", values, values, values)
    assert {line.status for line in findings.read()} == {"pass"}
    assert len(values) > 60
    for path, wrong in (
        ("power.average", values["power.average"] * 2 + 50),
        ("identity.name", "another"),
        ("pcie.generation_max", 1),
    ):
        findings = Findings(tmp_path / f"{path}.jsonl")
        compare(findings, "", {**values, path: wrong}, values, values)
        assert [line.what for line in findings.read() if line.status == "differs"] == [path]


def test_a_value_may_lie_between_before_and_after_or_be_rounded(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "lines.jsonl")
    before = {"power.average": 100.0, "memory.used": 1000 << 20, "clocks.sm_max": 1980e6}
    after = {**before, "power.average": 400.0}
    compare(findings, "", {**before, "power.average": 250.0, "memory.used": 1001 << 20}, before, after)
    assert {line.status for line in findings.read()} == {"pass"}


def test_a_field_with_another_value_than_its_call_differs(tmp_path: Path) -> None:
    """The reader asks by fields, which have never met a real GPU; the calls they stand for are beside them."""
    piece = f"""
    from pathlib import Path
    from tests.gpu.campaign import reads
    from tests.gpu.campaign.report import Findings
    reads.CALLS, reads.READS = 1, 2
    reads.fields(Path({str(tmp_path)!r}), Findings(Path({str(tmp_path)!r}) / "lines.jsonl"))
    """

    def compared() -> dict[str, str]:
        (tmp_path / "lines.jsonl").unlink(missing_ok=True)
        run(driver, piece)
        lines = Findings(tmp_path / "lines.jsonl").read()
        return {line.what: line.status for line in lines if line.what.endswith(", field and call")}

    with FakeDriver(tmp_path / "driver", gpus=1) as driver:
        well = compared()
        assert set(well.values()) == {"pass"}
        assert well.keys() >= {
            f"{name}, field and call"
            for name in ("power.average", "power.energy", "ecc.counts.corrected/volatile/dram", "NVLink states")
        }
        driver.set_field(0, pynvml.NVML_FI_DEV_POWER_AVERAGE, 1, kind="uint")
        driver.set_field(0, pynvml.NVML_FI_DEV_NVLINK_GET_STATE, 0, kind="uint")
        wrong = {"power.average, field and call", "NVLink states, field and call"}
        assert {what for what, status in compared().items() if status == "differs"} == wrong


@pytest.mark.slow  # lines that stay although a stage is cut off: test_text_of_a_driver_cannot_break_the_page
def test_a_stage_that_hangs_is_cut_off_and_keeps_its_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call never returns: what was found before it is in the report."""
    from tests.gpu.campaign.__main__ import run as run_stage

    (tmp_path / "logs").mkdir()
    with FakeDriver(tmp_path / "driver", gpus=1) as driver, FakeCuda(tmp_path / "cuda", []) as cuda:
        driver.hang("nvmlDeviceGetEncoderUtilization", gpu=0)
        for name, value in environment(driver, cuda).items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(ROOT)
        result = run_stage("fields", tmp_path, 15)
    assert result.outcome == "cut off at its deadline of 15 s"
    assert result.lines[-1].what == "utilization.gpu, utilization.memory"
    write(tmp_path, [result], 0.0, complete=False)
    assert "not complete" in (tmp_path / "report.md").read_text()
    assert json.loads((tmp_path / "report.json").read_text())["stages"][0]["lines"][0]["status"] == "pass"


def test_a_stage_that_fails_costs_its_own_lines(tmp_path: Path) -> None:
    """A driver without GPUs: the rows cannot be read, and the stages after that run."""
    for name in ("out", "work"):
        (tmp_path / name).mkdir()
    with FakeDriver(tmp_path / "driver", gpus=0) as driver, FakeCuda(tmp_path / "cuda", []) as cuda:
        env = environment(driver, cuda) | {"GPUWATCH_CAMPAIGN_STAGES": "machine,fields,nvidia_smi", "PATH": "/nowhere"}
        command = [sys.executable, "-m", "tests.gpu.campaign", str(tmp_path / "out"), str(tmp_path / "work")]
        done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    stages = json.loads((tmp_path / "out/report.json").read_text())["stages"]
    failed = "failed: status 1, see logs/fields.log"
    assert [stage["outcome"] for stage in stages] == ["done", failed, "done", "done"]
    assert stages[2]["lines"][0]["measured"] == "absent"


@pytest.mark.slow  # what is ended keeps its report: test_a_stage_that_fails_costs_its_own_lines writes it the same way
def test_a_campaign_that_is_ended_keeps_its_report_and_leaves_no_process(tmp_path: Path) -> None:
    for name in ("out", "work"):
        (tmp_path / name).mkdir()
    with FakeDriver(tmp_path / "driver", gpus=1) as driver, FakeCuda(tmp_path / "cuda", []) as cuda:
        driver.hang("nvmlDeviceGetEncoderUtilization", gpu=0)
        env = environment(driver, cuda) | {"GPUWATCH_CAMPAIGN_STAGES": "machine,fields"}
        command = [sys.executable, "-m", "tests.gpu.campaign", str(tmp_path / "out"), str(tmp_path / "work")]
        with subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.DEVNULL) as process:
            try:
                until((tmp_path / "work/fields.jsonl").exists, "the second stage")
                children = psutil.Process(process.pid).children(recursive=True)
            finally:
                process.terminate()
        assert process.returncode == 128 + signal.SIGTERM
        assert psutil.wait_procs(children, timeout=30)[1] == []
    assert '"machine"' in (tmp_path / "out/report.json").read_text()
    assert not (tmp_path / "work").exists()


def test_text_of_a_driver_cannot_break_the_page(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "lines.jsonl")
    findings.add("name", "a | b\nc", "\x1b[31m<script>", "differs")
    with (tmp_path / "lines.jsonl").open("a") as file:
        file.write('["cut off')
    (line,) = findings.read()
    write(tmp_path, [StageResult("one", "done", 1.0, (line,))], 0.0, complete=True)
    rows = [row for row in (tmp_path / "report.md").read_text().splitlines() if "name" in row]
    assert rows == [
        "| one: name | a \\| b c |  [31m&lt;script> | differs |  |",
        "| name | a \\| b c |  [31m&lt;script> | differs |  |",
    ]


def test_wheels_are_chosen_by_the_python_that_runs() -> None:
    own, other = f"cp3{sys.version_info.minor}", f"cp3{sys.version_info.minor + 1}"
    assert fits(f"grpcio-1.85.1-{own}-{own}-manylinux_2_17_x86_64.whl")
    assert not fits(f"grpcio-1.85.1-{other}-{other}-manylinux_2_17_x86_64.whl")
    assert fits("bcrypt-5.0.0-cp39-abi3-manylinux_2_28_x86_64.whl")
    assert not fits(f"bcrypt-5.0.0-{other}-abi3-manylinux_2_28_x86_64.whl")
    assert fits("kubernetes-37.0.2-py2.py3-none-any.whl")
