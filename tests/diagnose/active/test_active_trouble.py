"""The active checks when the driver hangs, crashes, is slow or is not there: nobody waits for ever or is killed."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from gpuwatch.diagnose.active.parent import Ended, run_job
from gpuwatch.diagnose.active.results import DeviceRun, Job
from gpuwatch.diagnose.active.run import run_active
from tests.diagnose.active.putting_to_work import ALL, by_test, devices
from tests.diagnose.hosts import seen
from tests.fakes.libcuda import FakeCuda
from tests.waiting import BOUND_SECONDS, until

TRIES = (1.5, 3.0, 6.0, 12.0, 24.0, 48.0)
"""Seconds that a process gets to come to the call where it hangs; a busy machine needs more than the first."""

SLACK = 30.0
"""For a busy machine: who waited for a process that hangs would wait for ever."""


def test_a_process_that_crashes_is_reported_with_the_call(cuda, view, run):
    cuda.crash("cuMemcpyDtoH_v2", devices(view)[0])
    active = run()
    assert by_test(active, 0)["vector_add"].error == "the check was ended by SIGSEGV in cuMemcpyDtoH_v2"
    assert by_test(active, 0)["vector_add"].fault == "crash"
    assert by_test(active, 1)["memory"].error is None


def test_a_process_that_hangs_is_left_alone(cuda, view):
    """It gets SIGTERM, which a call of the driver does not see, and is never killed."""
    cuda.hang("cuCtxSynchronize")
    job = Job(devices=(devices(view)[0],), tests=ALL, library=str(cuda.library))
    ended, seconds = hung_in("cuCtxSynchronize", job)
    (run,) = ended.runs
    assert (run.test, run.fault, ended.left) == ("vector_add", "hang", True)
    pid = left_alone(run)
    assert run.error == f"no answer within {seconds:.0f} s in cuCtxSynchronize; process {pid} was left alone"
    process = psutil.Process(pid)
    assert process.is_running()
    assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)
    assert Path(f"/proc/{pid}/oom_score_adj").read_text().strip() == "1000"
    cuda.path.unlink()  # the driver comes back to life
    until(lambda: not psutil.pid_exists(pid) or process.status() == psutil.STATUS_ZOMBIE)
    assert cuda.leaks() == [], "it gave everything back when it could"
    assert cuda.ends() >= 1


def hung_in(function: str, job: Job) -> tuple[Ended, float]:
    """What was told of a process that had time enough to come to this call, and how many seconds that were."""
    for seconds in TRIES:
        started = time.monotonic()
        ended = run_job(job, seconds)
        assert time.monotonic() - started < seconds + SLACK
        if ended.runs[-1].function == function:
            return ended, seconds
    raise AssertionError(f"not in {function} within {TRIES[-1]:.0f} s")


def left_alone(run: DeviceRun) -> int:
    """Its process."""
    assert run.error is not None
    return int(run.error.split("process ")[-1].split()[0])


def test_a_process_that_keeps_silent_and_does_not_end_is_left_alone(tmp_path):
    """When it ends the kernel closes its pipe, then files of the driver that may keep it."""
    source, library = tmp_path / "stays.c", tmp_path / "stays.so"
    source.write_text(
        "#include <unistd.h>\n__attribute__((constructor)) static void stays(void) "
        "{ for (int fd = 0; fd < 64; fd++) close(fd); for (;;) pause(); }\n"
    )
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
    try:
        for seconds in TRIES:
            started = time.monotonic()
            ended = run_job(Job(devices=("GPU-0",), tests=ALL, library=str(library)), seconds)
            assert time.monotonic() - started < seconds + SLACK
            if "its process does not end" in ended.runs[-1].error:
                break
    finally:
        _end_those_of(library)
    assert (ended.left, ended.runs[-1].fault) == (True, "hang")
    assert "its process does not end" in ended.runs[-1].error


def test_a_process_that_is_only_slow_is_ended(cuda, view):
    cuda.delay("cuLaunchKernel", 0.3)
    job = Job(devices=(devices(view)[0],), tests=("memory",), library=str(cuda.library))
    ended = run_job(job, 0.9)
    assert (ended.runs[0].fault, ended.left) == ("hang", False)
    assert "left alone" not in ended.runs[0].error
    assert (cuda.leaks(), cuda.misuses()) == ([], [])


def test_no_more_processes_are_sent_into_a_driver_that_hangs(tmp_path, monkeypatch):
    view = seen(gpus=4)
    for number, seconds in enumerate(TRIES):
        with FakeCuda(tmp_path / str(number), devices(view)) as cuda:
            monkeypatch.setenv("GPUWATCH_FAKE_CUDA", cuda.env["GPUWATCH_FAKE_CUDA"])
            cuda.hang("cuInit")
            started = time.monotonic()
            active = run_active(view, library=str(cuda.library), device_deadline=seconds)
            assert time.monotonic() - started < 2 * seconds + SLACK
            assert cuda.calls().count("cuInit") <= 2
        if [r.function for r in active.runs[:2]] == ["cuInit"] * 2:
            break
    assert [(r.index, r.fault) for r in active.runs if r.error] == [(0, "hang"), (1, "hang")]
    refused = {r.refused for r in active.runs if r.index == 3 or r.test == "peer"}
    assert refused == {"2 processes hang in the driver already"}


def test_a_device_for_which_no_time_was_left_is_not_at_fault(cuda, run):
    cuda.delay("cuInit", 5)
    active = run(deadline=0.8)
    assert [r.error for r in active.runs if r.error] == []
    assert active.runs[0].refused.startswith("no time was left: no answer within 1 s")
    assert {r.refused for r in active.runs[1:]} == {"no time was left"}


def test_the_work_is_done_on_the_cpus_next_to_the_device(cuda, view):
    """Wherever it was started; pinned memory is then on the device's side."""
    node = Path("/sys/devices/system/node/node0/cpulist")
    if not node.exists():
        pytest.skip("this machine does not tell its NUMA nodes")
    cuda.hang("cuInit")
    job = Job(devices=(devices(view)[0],), tests=ALL, library=str(cuda.library), numa_node=0)
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(own)})
    try:
        (run,) = hung_in("cuInit", job)[0].runs
    finally:
        os.sched_setaffinity(0, own)
    near = {
        cpu
        for first, _, last in (part.partition("-") for part in node.read_text().strip().split(","))
        for cpu in range(int(first), int(last or first) + 1)
    }
    pid = left_alone(run)
    assert near & own <= set(psutil.Process(pid).cpu_affinity()) <= near


def test_an_interrupted_parent_takes_its_child_along(cuda, view):
    cuda.delay("cuLaunchKernel", 0.2)
    job = Job(devices=(devices(view)[0],), tests=ALL, library=str(cuda.library))
    others = _children()
    previous = signal.signal(signal.SIGALRM, _interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.6)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_job(job, BOUND_SECONDS)
    finally:
        signal.signal(signal.SIGALRM, previous)
    until(lambda: _children() <= others)
    assert cuda.leaks() == []


def test_no_library(view, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    active = run_active(view, library="/nonexistent/libcuda.so.1")
    assert {(r.test, r.fault) for r in active.runs} == {("vector_add", "library")}
    assert all("/nonexistent/libcuda.so.1" in r.error for r in active.runs)


def test_the_library_of_another_program_is_no_libcuda(view, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    error = run_active(view, library="libc.so.6", selected=frozenset({0})).runs[0].error
    assert error == "libc.so.6 has no cuInit: it is of a driver before 470"


def test_variables_that_change_what_cuda_does_are_kept_out(cuda, run, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("CUDA_DISABLE_PTX_JIT", "1")
    assert [r.error for r in run().runs if r.error] == []


def test_cuda_that_shows_other_devices_is_not_trusted(cuda, view):
    one = devices(view)[0]
    (run,) = run_job(Job(devices=(one, "GPU-unknown"), tests=("peer",), library=str(cuda.library)), BOUND_SECONDS).runs
    assert run.error == "CUDA shows 1 devices where 2 should be visible"
    assert run.fault == "wrong"


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _children() -> set[int]:
    """Those that run; tests of other files may have left theirs in a driver that hangs."""
    found = set()
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found |= {child.pid} if child.status() != psutil.STATUS_ZOMBIE else set()
    return found


def _end_those_of(library: Path) -> None:
    for child in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if any(str(library) in argument for argument in child.cmdline()):
                child.kill()
