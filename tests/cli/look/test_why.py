"""`gpuwatch why` and `describe pod`: the known cause stands first, by an agent's last minutes or by own samples."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from gpuwatch.model.recent import Recent, RecentSample, RecentSamples
from tests.cli.commands import ask, run
from tests.model import views


def hot(view, index: int = 1) -> Recent:
    """Two minutes in which one GPU was at work and held down by heat, and the others were not held."""
    at = view.snapshot.at
    return Recent(
        gpus={
            gpu.identity.uuid: tuple(
                RecentSample(
                    at=at - 5 * step,
                    utilization=0.98,
                    clock=0.5 * gpu.clocks.sm_max if gpu.identity.index == index else gpu.clocks.sm_max,
                    held=("hw_thermal_slowdown",) if gpu.identity.index == index else (),
                )
                for step in reversed(range(24))
            )
            for gpu in view.snapshot.gpus
        }
    )


def test_an_agents_last_minutes_show_the_cause_with_its_figures_and_what_to_do(tmp_path: Path):
    view = views.healthy()
    shown = ask(view, "why", "1", "--state-dir", str(tmp_path), recent=hot(view))
    lines = [line.strip() for line in shown.stdout.splitlines()]
    assert shown.exit_code == 0
    assert lines[1] == "1 heat  costs up to 50%"
    assert lines[2].startswith("the hardware halves its clocks because of heat: 990 of 1980 MHz, in 100% of its time")
    assert any("check air flow" in line for line in lines)


def test_the_document_has_base_units_and_the_rank(tmp_path: Path):
    view = views.healthy()
    shown = ask(view, "why", "1", "-o", "json", "--state-dir", str(tmp_path), recent=hot(view))
    first = json.loads(shown.stdout)["items"][0]
    assert (first["gpu"], first["cause"], first["rank"], first["loss"]) == (1, "heat", "held", 0.5)


def test_a_pod_is_named_with_or_without_its_namespace_and_so_is_its_gpu(tmp_path: Path):
    view, place = views.healthy(), ("-o", "json", "--state-dir", str(tmp_path))
    user = next(d.holders[0].workload for d in view.attribution.devices if d.holders)
    gpus = {d.gpu for d in view.attribution.devices if any(h.workload.pod == user.pod for h in d.holders)}
    hottest = next(g.identity.index for g in view.snapshot.gpus if g.identity.uuid in gpus)
    for name in ((user.pod,), (f"{user.namespace}/{user.pod}",), (user.pod, "-n", user.namespace)):
        items = json.loads(ask(view, "why", *name, *place, recent=hot(view, hottest)).stdout)["items"]
        assert items[0]["cause"] == "heat"
        assert {item["uuid"] for item in items} <= gpus


def test_a_name_that_is_not_there_is_an_error_with_the_next_step():
    shown = ask(views.healthy(), "why", "no-such-pod")
    assert shown.exit_code == 2
    assert "no GPU, pod, Slurm job or container on this node matches 'no-such-pod'; " in shown.stderr
    assert "see gpuwatch get pods" in shown.stderr


def test_describe_pod_has_its_devices_processes_causes_and_history(tmp_path: Path):
    view = views.healthy()
    user = next(d.holders[0].workload for d in view.attribution.devices if d.holders)
    gpu = next(d.gpu for d in view.attribution.devices if d.holders)
    index = next(g.identity.index for g in view.snapshot.gpus if g.identity.uuid == gpu)
    place = ("--state-dir", str(tmp_path))
    shown = ask(view, "describe", "pods", user.pod, *place, recent=hot(view, index)).stdout
    assert shown.startswith(f"Pod {user.namespace}/{user.pod}\n")
    for part in ("\nDevices\n", "\nGPUs\n", "\nWhy it may be slow\n", "1 heat"):
        assert part in shown
    shown = ask(view, "describe", "pod", user.pod, "-o", "json", *place, recent=hot(view, index))
    item = json.loads(shown.stdout)["items"][0]
    assert {device["pod"] for device in item["devices"]} == {user.pod}


def test_describe_job_has_its_gpu_processes_and_user(tmp_path: Path):
    view, place = views.bare(), ("--state-dir", str(tmp_path))
    told = json.loads(ask(view, "describe", "job", "4711", "-o", "json", *place, recent=hot(view, 0)).stdout)
    (item,) = told["items"]
    assert told["kind"] == "JobDescription"
    assert [gpu["index"] for gpu in item["gpus"]] == [0]
    assert [(process["pid"], process["slurm_job"]) for process in item["process_list"]] == [(10, "4711")]
    assert item["users"] == ["anna"]
    shown = ask(view, "describe", "jobs", "4711", *place, recent=hot(view, 0))
    assert shown.stdout.startswith("Slurm job 4711 of anna\n\nGPUs\n")
    noted = tuple(replace(owner, slurm_account="physics", slurm_partition="gpu") for owner in view.owners)
    shown = ask(replace(view, owners=noted), "describe", "job", "4711", *place, recent=hot(view, 0))
    assert shown.stdout.startswith("Slurm job 4711 of anna (account physics, partition gpu)\n")
    unknown = ask(view, "describe", "job", "12", *place)
    assert unknown.exit_code == 2
    assert "no process of Slurm job '12' is on a GPU here; this node's jobs are 4711; see " in unknown.stderr


def test_a_pod_of_one_name_in_two_namespaces_has_to_be_chosen():
    view = views.healthy()
    first, *others = [d for d in view.attribution.devices if d.holders]
    holder = first.holders[0]
    twin = replace(holder, workload=replace(holder.workload, namespace="elsewhere"))
    doubled = (first, replace(others[0], holders=(twin,)), *others[1:])
    view = replace(view, attribution=replace(view.attribution, devices=doubled))
    pod, spaces = holder.workload.pod, sorted(["elsewhere", holder.workload.namespace])
    shown = ask(view, "describe", "pod", pod)
    assert shown.exit_code == 2
    assert f"pod {pod!r} is there in {', '.join(spaces)}" in shown.stderr
    shown = ask(view, "describe", "pod", pod, "-n", "elsewhere", recent=hot(view, 1))
    assert shown.stdout.startswith(f"Pod elsewhere/{pod}\n")


@pytest.mark.slow
def test_without_an_agent_the_command_measures_itself():
    """On the simulator, through a real reader; `test_an_agents_last_minutes...` holds the judgement."""
    shown = run("--source", "sim:rightsizing", "why", "0", "--seconds", "1", "-o", "json")
    assert json.loads(shown.stdout)["items"][0]["cause"] == "no_work"


def test_samples_are_kept_at_their_spacing_for_ten_minutes_and_forgotten_with_their_gpu():
    view, recent = views.healthy(), RecentSamples()
    for second in range(1000):
        gpus = tuple(replace(gpu, at=view.snapshot.at + second) for gpu in view.snapshot.gpus)
        recent.add(replace(view, snapshot=replace(view.snapshot, gpus=gpus)))
    kept = recent.recent.gpus[view.snapshot.gpus[0].identity.uuid]
    assert (len(kept), kept[-1].at - kept[0].at) == (120, 595)
    recent.add(replace(view, snapshot=replace(view.snapshot, gpus=(), statuses=view.snapshot.statuses[1:])))
    assert view.snapshot.gpus[0].identity.uuid not in recent.recent.gpus
