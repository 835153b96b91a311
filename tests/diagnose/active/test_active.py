"""The active checks on a fake libcuda.so.1: what is measured, which errors are found, what is given back."""

import pytest

from gpuwatch.diagnose.active.parent import run_job
from gpuwatch.diagnose.active.results import Job
from gpuwatch.diagnose.active.run import run_active, unavailable
from tests.diagnose.active.putting_to_work import ALL, by_test, devices
from tests.diagnose.hosts import seen
from tests.fakes.libcuda import FakeCuda
from tests.seeds import a_third, seeded

CUT = {"gpus": 2, "mig": {"0": ["3g.40gb", "3g.40gb"]}}


def test_all_is_well(cuda, view, run):
    said = []
    active = run(progress=said.append)
    one, other = devices(view)
    assert [(r.test, r.device, r.index, r.peer) for r in active.runs] == [
        *((test, one, 0, None) for test in ALL),
        *((test, other, 1, None) for test in ALL),
        ("peer", one, 0, 1),
    ]
    assert [(r.error, r.refused) for r in active.runs if r.error or r.refused] == []
    assert all(r.seconds and r.bytes for r in active.runs)
    assert [text.split(":")[0] for text in said] == ["GPU 0", "GPU 1", "GPU 0 and GPU 1"]


def test_it_leaves_nothing_behind_and_plays_by_the_rules(cuda, run):
    run()
    assert (cuda.misuses(), cuda.leaks()) == ([], [])
    assert cuda.ends() == 3, "one process for each GPU and one for the pair"
    calls = cuda.calls()
    for get, give in (
        ("cuMemAlloc_v2", "cuMemFree_v2"),
        ("cuMemAllocHost_v2", "cuMemFreeHost"),
        ("cuModuleLoadDataEx", "cuModuleUnload"),
        ("cuEventCreate", "cuEventDestroy_v2"),
        ("cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRelease_v2"),
        ("cuCtxEnablePeerAccess", "cuCtxDisablePeerAccess"),
    ):
        assert calls.count(get) == calls.count(give) > 0, get


def test_speeds_are_the_devices_own(cuda, view, run):
    cuda.speed("down", 12e9, devices(view)[0])
    cuda.speed("up", 10e9, devices(view)[0])
    cuda.speed("peer", 200e9)
    active = run()
    slow, fast = by_test(active, 0), by_test(active, 1)
    assert slow["bandwidth"].host_to_device == pytest.approx(12e9, rel=0.01)
    assert slow["bandwidth"].device_to_host == pytest.approx(10e9, rel=0.01)
    assert fast["bandwidth"].host_to_device > 40e9
    assert slow["peer"].peer_bandwidth == pytest.approx(200e9, rel=0.01)


@pytest.mark.parametrize("code", seeded([802, 100, 46, 2, 999]))
def test_cuda_cannot_be_started(cuda, view, run, code):
    cuda.error("cuInit", code, devices(view)[1])
    active = run()
    failed = by_test(active, 1)
    assert set(failed) == {"vector_add"}, "nothing else is tried where CUDA does not start"
    assert (failed["vector_add"].fault, failed["vector_add"].code) == ("cuda", code)
    assert failed["vector_add"].error.startswith("cuInit: CUDA_ERROR_")
    assert f"({code}): " in failed["vector_add"].error
    assert by_test(active, 0)["memory"].error is None
    assert "peer" not in by_test(active), "a GPU that does not compute has no pair"


FUNCTIONS = {
    "cuDevicePrimaryCtxRetain": (46, "vector_add"),
    "cuMemAlloc_v2": (2, "vector_add"),
    "cuModuleLoadDataEx": (221, "vector_add"),
    "cuLaunchKernel": (719, "vector_add"),
    "cuCtxSynchronize": (214, "vector_add"),
    "cuMemcpyHtoD_v2": (700, "vector_add"),
    "cuMemFree_v2": (999, "vector_add"),
    "cuMemAllocHost_v2": (2, "bandwidth"),
    "cuEventRecord": (999, "bandwidth"),
    "cuMemcpyPeer": (220, "peer"),
    "cuCtxEnablePeerAccess": (217, "peer"),
}


@pytest.mark.parametrize("function", a_third(FUNCTIONS))
def test_an_error_names_its_call_and_the_rest_is_restored(cuda, run, function):
    code, test = FUNCTIONS[function]
    cuda.error(function, code)
    selected = None if test == "peer" else frozenset({0})  # one process instead of three
    failed = by_test(run(selected=selected))[test]
    assert (failed.fault, failed.code, failed.function) == ("cuda", code, function)
    assert failed.error.startswith(f"{function}: ")
    assert cuda.misuses() == []
    assert [leak for leak in cuda.leaks() if function != "cuMemFree_v2"] == []


def test_what_the_compiler_says_is_reported(cuda, run):
    cuda.wrong("ptx", 1)
    error = by_test(run(selected=frozenset({0})))["vector_add"].error
    assert error.startswith("cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (218)")
    assert error.endswith("ptxas fatal   : refused by the test")


def test_a_wrong_sum_is_found(cuda, view, run):
    cuda.wrong("vector_add", 4711, devices(view)[0])
    failed = by_test(run(), 0)["vector_add"]
    assert (failed.error, failed.fault) == ("vectorAdd is wrong at i=4711: 4711 + 4718 gave 9430.0", "wrong")


@pytest.mark.parametrize("index", [0, 1 << 20, (1 << 20) - 4])
def test_a_wrong_sum_is_found_at_the_ends(cuda, run, index):
    cuda.wrong("vector_add", index)
    failed = by_test(run(selected=frozenset({0})))["vector_add"]
    assert (failed.fault == "wrong") == (index < (1 << 20) - 3)


def test_a_stuck_bit_is_found_whatever_it_sticks_at(cuda, view, run):
    cuda.wrong("memory", 123456, devices(view)[1])
    failed = by_test(run(), 1)["memory"]
    assert failed.error.startswith("1 of 6291456 words are wrong, the first at byte 493824: 0x")
    assert failed.fault == "wrong"


def test_a_copy_that_comes_back_changed_is_found(cuda, run):
    cuda.wrong("up", 5_000_000)  # beyond the vectors' ends
    runs = by_test(run(selected=frozenset({0})))
    assert runs["bandwidth"].error == "12 MiB copied to the GPU and back came back changed"


def test_a_copy_between_gpus_that_arrives_changed_is_found(cuda, run):
    cuda.wrong("peer", 400)
    assert by_test(run())["peer"].error.startswith("1 of 3145728 words are wrong, the first at byte 400: 0x")


def test_gpus_that_cannot_reach_each_other(cuda, view, run):
    cuda.apart(*devices(view))
    assert by_test(run())["peer"].error.startswith("the GPUs cannot reach each other's memory")


def test_little_free_memory_is_no_fault(cuda, view, tmp_path, monkeypatch):
    with FakeCuda(tmp_path / "full", devices(view), free=13 << 20) as full:
        full.error("cuMemcpyPeer", 999)
        monkeypatch.setenv("GPUWATCH_FAKE_CUDA", full.env["GPUWATCH_FAKE_CUDA"])
        runs = by_test(run_active(view, library=str(full.library), selected=frozenset({0})))
        assert runs["memory"].bytes == 6 << 20, "half of what is free"
    with FakeCuda(tmp_path / "fuller", devices(view), free=1 << 20) as fuller:
        monkeypatch.setenv("GPUWATCH_FAKE_CUDA", fuller.env["GPUWATCH_FAKE_CUDA"])
        job = Job(devices=(devices(view)[0],), tests=("memory",), library=str(fuller.library))
        (ended,) = run_job(job, 20).runs
        assert (ended.refused, ended.error) == ("only 1 MiB of its memory are free", None)


def test_every_mig_instance_is_tried_by_itself(tmp_path, monkeypatch):
    view = seen(**CUT)
    monkeypatch.setenv("PATH", "/nonexistent")
    with FakeCuda(tmp_path, devices(view)) as cuda:
        monkeypatch.setenv("GPUWATCH_FAKE_CUDA", cuda.env["GPUWATCH_FAKE_CUDA"])
        active = run_active(view, library=str(cuda.library))
        assert (cuda.misuses(), cuda.leaks()) == ([], [])
    assert [(r.index, r.device) for r in active.runs if r.test == "memory"] == [
        (0, devices(view)[0]),
        (0, devices(view)[1]),
        (1, devices(view)[2]),
    ]
    assert [r for r in active.runs if r.error or r.refused] == []
    assert "peer" not in by_test(active), "there is no NVLink between MIG instances"


def test_no_cuda_behind_a_simulation_unless_a_library_is_named():
    assert "recorded or simulated" in unavailable(live=False, library="")
    assert unavailable(live=True, library="") is None
    assert unavailable(live=False, library="/tmp/libcuda.so.1") is None
