"""`gpuwatch recommend --from-prometheus`, as people type it, against a real Prometheus whose past goes up to now."""

import json
import os
import subprocess
import sys
import time

import pytest

from tests.e2e.backfilled import backfill, lines, serving

AT = {"gpu": "3", "uuid": "GPU-11111111-2222-3333-4444-555555555555", "node": "node-7", "job": "gpuwatch"}
POD = {"namespace": "lab", "pod": "jupyter-ann-0", "container": "notebook", "resource": "nvidia.com/gpu"}


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    now = int(time.time())  # of the test: this module may have been read long before
    times = range(now - 4 * 3600, now, 60)
    text = lines("gpuwatch_gpu_info", AT | {"model": "NVIDIA H100 80GB HBM3"}, times)
    text += lines("gpuwatch_gpu_workload_info", AT | POD, times)
    text += lines("gpuwatch_gpu_utilization_mean_ratio", AT, times, 0.0)
    text += lines("gpuwatch_gpu_processes", AT, times, 0)
    text += lines("gpuwatch_gpu_memory_used_bytes", AT, times, 3 << 20)
    text += lines("gpuwatch_gpu_memory_total_bytes", AT, times, 80 << 30)
    with serving(backfill(tmp_path_factory.mktemp("now"), text)) as server:
        yield server.url


def recommend(url, place, *more):
    command = [sys.executable, "-m", "gpuwatch", "recommend", "--from-prometheus", url, "--window", "6h", *more]
    env = {**os.environ, "XDG_CACHE_HOME": str(place / "cache"), "NO_COLOR": "1"}
    return subprocess.run(command, capture_output=True, text=True, env=env, check=False)


def test_a_notebook_that_never_used_its_gpu_is_found(url, tmp_path):
    done = recommend(url, tmp_path, "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["source"], found["workloads"]) == (f"Prometheus {url}", 1)
    item = next(item for item in found["items"] if item["kind"] == "never_used")
    target = item["target"]
    assert (target["namespace"], target["pods"], target["nodes"]) == ("lab", ["jupyter-ann-0"], ["node-7"])
    assert item["evidence"]["held_seconds"] == pytest.approx(4 * 3600, abs=600)


def test_another_namespace_has_nothing(url, tmp_path):
    done = recommend(url, tmp_path, "-n", "other", "-o", "json")
    assert done.returncode == 0
    assert json.loads(done.stdout)["items"] == []


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--window", "soon"], 2, "--window soon is no duration"),
        (["--header", "tenant"], 2, "NAME:VALUE"),
        (
            ["--http-config", "/nowhere.yaml"],
            2,
            "cannot read HTTP configuration /nowhere.yaml; No such file or directory; check --http-config",
        ),
        (["--metrics", "dcgm"], 1, "knows no GPU; it has no DCGM_FI_DEV_FB_USED in the last 6 hours"),
        (["-n", "no_name"], 2, "no_name is no namespace"),
    ],
)
def test_what_is_wrong_is_reported_in_a_line(url, tmp_path, options, code, words):
    done = recommend(url, tmp_path, *options)
    assert (done.returncode, done.stdout) == (code, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
