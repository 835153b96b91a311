"""What carries advice out: the right object, nothing but that, and a shell that understands it as it was meant."""

import json
import re
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.model.text import visible
from gpuwatch.rightsizing.apply import all_applied
from gpuwatch.rightsizing.apply.pod import ELSEWHERE, TEMPLATES
from gpuwatch.rightsizing.model.mig_profiles import model_of
from gpuwatch.rightsizing.model.recommendation import RecommendedAction, RecommendedChange
from gpuwatch.rightsizing.model.usage import FleetFacts, GpuFacts
from tests.rightsizing.findings.advised import A100, H100, advice, applied, cut, layout, resized, shared
from tests.seeds import examples

OWNERS = (*TEMPLATES, *ELSEWHERE, "Job", "Pod", "User", "SlurmJob", "SomethingElse", None)
QUOTA = RecommendedChange(hard={"nvidia.com/gpu": 6, "requests.nvidia.com/mig-1g.5gb": 4}, quota="gpu")
ENERGY = RecommendedChange(annotations={"gpuwatch.io/autotune": "enforce", "gpuwatch.io/autotune-class": "batch"})
WRITES_DOWN = r"""#!/bin/sh
printf "%s\0" "$@" >> {log}
printf "\001\0" >> {log}
"""
"""A kubectl that keeps its words, each call ending with one that no name can be."""

EVERY = [
    resized(),
    shared("mps"),
    cut(layout("gpu-1", 0, "1g.10gb")),
    advice(RecommendedAction.SCALE_DOWN, work_class="batch"),
    advice(RecommendedAction.CHANGE_QUOTA, QUOTA),
    advice(RecommendedAction.RESERVE, nodes=("gpu-1",)),
    advice(RecommendedAction.TUNE, ENERGY, kind="Job", pods=("server-0",)),
]


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """Runs text in a shell whose only kubectl writes down what it was told."""
    place = tmp_path_factory.mktemp("shell")
    log = place / "log"
    (place / "kubectl").write_text(WRITES_DOWN.format(log=log))
    (place / "kubectl").chmod(0o755)

    def run(text):
        log.write_bytes(b"")
        done = subprocess.run(["/bin/sh", "-euc", text], env={"PATH": str(place)}, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), done
        assert sorted(path.name for path in place.iterdir()) == ["kubectl", "log"]
        return [call.split("\0")[:-1] for call in log.read_text().split("\1\0")[:-1]]

    return run


def only(found):
    (one,) = found.apply
    return one


def patched(command):
    """What a patch says."""
    return json.loads(next(word for word in command if word.startswith("--patch=")).removeprefix("--patch="))


@pytest.mark.parametrize("kind", TEMPLATES)
def test_a_template_is_patched_at_its_place_by_the_containers_name(shell, kind):
    found = only(applied(resized(kind=kind)))
    (command,) = shell(found.command)
    assert command[:3] == ["--namespace=nlp", "patch", command[2]]
    assert command[2].partition("/")[0].partition(".")[0] == kind.lower()
    assert command[2].endswith("/server")
    assert "--type=strategic" in command
    assert patched(command) == found.manifest
    inside = found.manifest
    for key in TEMPLATES[kind]:
        assert list(inside) == [key]
        inside = inside[key]
    has_requests = {"nvidia.com/gpu": None, "nvidia.com/mig-1g.10gb.me": "1"}
    container = {"name": "main", "resources": {"limits": has_requests, "requests": has_requests}}
    assert inside == {"spec": {"containers": [container]}}
    assert "nvidia.com/mig-1g.10gb.me" in found.note


def test_fewer_of_the_same_resource_drop_nothing():
    found = only(
        applied(advice(RecommendedAction.REDUCE, RecommendedChange(resource="nvidia.com/gpu", count=8, to_count=7)))
    )
    (container,) = found.manifest["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {key: {"nvidia.com/gpu": "7"} for key in ("limits", "requests")}
    assert "--nproc-per-node" in found.note
    assert "--nproc-per-node" not in only(applied(resized())).note


@pytest.mark.parametrize("kind", ["Job", "Pod", *ELSEWHERE, "SomethingElse"])
def test_what_cannot_be_patched_gets_a_fragment_and_words(kind):
    found = only(applied(resized(kind=kind)))
    has_requests = {"nvidia.com/mig-1g.10gb.me": "1"}
    assert found.command is None
    assert found.manifest == {"name": "main", "resources": {"limits": has_requests, "requests": has_requests}}
    assert ELSEWHERE.get(kind, kind if kind == "SomethingElse" else "create it") in found.note
    assert "Take nvidia.com/gpu out" in found.note


@pytest.mark.parametrize("unknown", [{"kind": None}, {"namespace": ""}])
def test_an_unknown_owner_gets_words_alone(unknown):
    found = only(applied(resized(**unknown)))
    assert (found.command, found.manifest) == (None, None)
    assert "nvidia.com/mig-1g.10gb.me: 1" in found.note


def test_a_container_without_a_name_is_not_patched():
    assert only(applied(resized(container=None))).command is None


def test_an_unknown_resource_is_taken_for_the_usual_one_and_that_is_reported():
    change = RecommendedChange(count=1, to_resource="nvidia.com/mig-1g.10gb", to_count=1)
    found = only(applied(advice(RecommendedAction.RESIZE, change)))
    assert '"nvidia.com/gpu":null' in found.command
    assert "not known" in found.note


def test_of_an_unknown_resource_of_an_instance_the_old_one_is_not_kept_beside_the_new_one(shell):
    """dcgm-exporter does not tell what a pod asks for: a template that asks for two devices gets none."""
    change = RecommendedChange(count=1, to_resource="nvidia.com/mig-1g.10gb", to_count=1)
    about = advice(RecommendedAction.RESIZE, change)
    (command,) = shell(only(applied(replace(about, target=replace(about.target, model=H100)))).command)
    (container,) = patched(command)["spec"]["template"]["spec"]["containers"]
    has_requests = container["resources"]["limits"]
    assert {"nvidia.com/gpu", "nvidia.com/mig-3g.40gb", "nvidia.com/mig-7g.80gb"} <= has_requests.keys()
    assert {name: count for name, count in has_requests.items() if count} == {"nvidia.com/mig-1g.10gb": "1"}


@pytest.mark.parametrize("kind", OWNERS)
@pytest.mark.parametrize("work_class", ["serving", None])
def test_nothing_ends_work_that_may_serve_whatever_the_advice_says(kind, work_class):
    about = {"kind": kind, "work_class": work_class, "pods": ("server-1-abcde",)}
    for action in (RecommendedAction.SCALE_DOWN, RecommendedAction.ASK_OWNER):
        assert applied(advice(action, **about)).apply == ()


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("Deployment", [["--namespace=nlp", "scale", "deployment.apps/server", "--replicas=0"]]),
        ("StatefulSet", [["--namespace=nlp", "scale", "statefulset.apps/server", "--replicas=0"]]),
        ("Pod", [["--namespace=nlp", "delete", "pod/server"]]),
        (
            "Job",
            [["--namespace=nlp", "patch", "job.batch/server", "--type=merge", '--patch={"spec":{"suspend":true}}']],
        ),
        (
            "CronJob",
            [["--namespace=nlp", "patch", "job.batch/server-29", "--type=merge", '--patch={"spec":{"suspend":true}}']],
        ),
    ],
)
def test_batch_is_ended_so_that_it_can_come_back(shell, kind, expected):
    pods = ("server-29-abcde", "server-29-bcdef", "other-1-abcde")
    found = only(applied(advice(RecommendedAction.SCALE_DOWN, kind=kind, work_class="batch", pods=pods)))
    assert shell(found.command) == expected


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job", "CronJob"])
def test_one_node_does_not_end_what_may_work_on_others(kind):
    about = {"kind": kind, "work_class": "batch", "pods": ("server-29-abcde",)}
    found = only(applied(advice(RecommendedAction.SCALE_DOWN, **about), FleetFacts(alone=True)))
    assert found.command is None
    assert "Only this node was seen" in found.note


def test_one_node_ends_a_bare_pod_and_no_job_of_slurm():
    bare = only(applied(advice(RecommendedAction.SCALE_DOWN, kind="Pod", work_class="batch"), FleetFacts(alone=True)))
    assert bare.command == "kubectl --namespace=nlp delete pod/server"
    job = {"kind": "SlurmJob", "name": "4711", "namespace": "", "work_class": "batch"}
    assert only(applied(advice(RecommendedAction.SCALE_DOWN, **job))).command == "scancel 4711"
    assert only(applied(advice(RecommendedAction.SCALE_DOWN, **job), FleetFacts(alone=True))).command is None


@pytest.mark.parametrize("kind", ["PyTorchJob", "DaemonSet", "User", None])
def test_no_command_ends_what_has_a_controller_of_its_own(kind):
    found = only(applied(advice(RecommendedAction.SCALE_DOWN, kind=kind, work_class="batch")))
    assert found.command is None
    assert (kind or "Who makes its pods is not known") in found.note


def test_a_quota_has_the_keys_that_extended_resources_take(shell):
    found = only(applied(advice(RecommendedAction.CHANGE_QUOTA, QUOTA)))
    hard = {"requests.nvidia.com/gpu": "6", "requests.nvidia.com/mig-1g.5gb": "4"}
    assert found.manifest == {"spec": {"hard": hard}}
    (command,) = shell(found.command)
    assert command[:4] == ["--namespace=nlp", "patch", "resourcequota/gpu", "--type=merge"]
    assert patched(command) == found.manifest


def test_a_quota_without_a_name_is_not_patched():
    assert (
        only(applied(advice(RecommendedAction.CHANGE_QUOTA, RecommendedChange(hard={"nvidia.com/gpu": 6})))).command
        is None
    )


@pytest.mark.parametrize(("strategy", "key"), [("time_slicing", "timeSlicing"), ("mps", "mps")])
def test_sharing_is_for_one_node_and_others_stay_as_they_are(shell, strategy, key):
    config, pod = applied(shared(strategy)).apply
    assert config.manifest["sharing"] == {
        key: {
            "renameByDefault": True,
            "failRequestsGreaterThanOne": True,
            "resources": [{"name": "nvidia.com/gpu", "replicas": 4}],
        }
    }
    apply, cordon = shell(config.command)  # no label: pods may still use the node's GPUs
    assert apply[:2] == ["apply", "--server-side"]
    assert cordon == ["cordon", "node/gpu-1"]
    (name,) = re.findall(r"have ended: kubectl label node/gpu-1 nvidia.com/device-plugin.config=(\S+)", config.note)
    assert f'"{name}"' in config.command
    assert '"default"' in config.command
    assert '"nvidia.com/gpu.shared":"1"' in pod.command


def test_gpus_in_mig_mode_are_not_shared_by_mps():
    fleet = FleetFacts(gpus=(GpuFacts(node="gpu-1", uuid="GPU-0", mig_enabled=True),))
    config, _ = applied(shared("mps"), fleet).apply
    assert config.command is None
    config, _ = applied(shared("time_slicing"), fleet).apply
    assert config.command


def test_an_instance_is_not_shared_by_mps():
    by_mps = shared("mps")
    config, _ = applied(replace(by_mps, change=replace(by_mps.change, resource="nvidia.com/mig-3g.40gb"))).apply
    assert config.command is None


def test_alike_layouts_share_a_configuration_and_gpus_that_are_not_named_stay():
    alike = [layout(node, index, "3g.40gb", "3g.40gb") for node in ("gpu-1", "gpu-2") for index in (2, 0)]
    operator, by_hand = applied(cut(*alike, layout("gpu-3", 0, "1g.10gb+me", "1g.10gb"))).apply
    configs = by_hand.manifest["mig-configs"]
    assert sorted(configs.values(), key=str) == [
        [{"devices": [0, 2], "mig-enabled": True, "mig-devices": {"3g.40gb": 2}}],
        [{"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 1, "1g.10gb+me": 1}}],
    ]
    inside = json.loads(operator.manifest["data"]["config.yaml"])["mig-configs"]
    assert inside == {"all-disabled": [{"devices": "all", "mig-enabled": False}], **configs}


def test_nodes_get_the_label_of_their_configuration(shell):
    operator, by_hand = applied(cut(layout("gpu-1", 0, "1g.10gb"), layout("gpu-2", 0, "2g.20gb"))).apply
    _, cordon, *labels = shell(operator.command)
    assert cordon == ["cordon", "node/gpu-1", "node/gpu-2"]
    told = {node: label.removeprefix("nvidia.com/mig.config=") for _, node, label, _ in labels}
    assert set(told) == {"node/gpu-1", "node/gpu-2"}
    assert set(told.values()) == set(by_hand.manifest["mig-configs"])
    assert all(len(name) <= 63 for name in told.values())


def test_a_node_of_which_a_gpu_is_in_use_is_not_labelled(shell):
    """MIG manager begins at once, and it is the node's: it stops what reports all of its GPUs, and may reboot it."""
    gpus = (GpuFacts(node="gpu-1", uuid="GPU-9", held=True), GpuFacts(node="gpu-2", uuid="GPU-8", held=False))
    found = applied(cut(layout("gpu-1", 0, "1g.10gb"), layout("gpu-2", 0, "2g.20gb")), FleetFacts(gpus=gpus))
    _, cordon, label = shell(found.apply[0].command)
    assert cordon == ["cordon", "node/gpu-1", "node/gpu-2"]
    assert label[:2] == ["label", "node/gpu-2"]
    assert "kubectl label node/gpu-1 nvidia.com/mig.config=" in found.apply[0].note


def test_the_first_layout_brings_the_configurations_of_all(shell):
    """Else the second label, or the second ConfigMap, would undo the first."""
    first = replace(cut(layout("gpu-1", 0, "1g.10gb")), id="first")
    second = cut(layout("gpu-1", 1, "1g.10gb", model=H100), layout("gpu-2", 0, "2g.20gb"))
    (one, by_hand), (two, also_by_hand) = (each.apply for each in all_applied((first, second)))
    (specs,) = by_hand.manifest["mig-configs"].values()
    assert [spec["devices"] for spec in specs] == [[0], [1]]
    every = json.loads(one.manifest["data"]["config.yaml"])["mig-configs"]
    assert set(every) == {"all-disabled", *by_hand.manifest["mig-configs"], *also_by_hand.manifest["mig-configs"]}
    assert two.manifest is None
    assert "comes with first" in two.note
    _, *labels = shell(two.command)
    assert {name.removeprefix("nvidia.com/mig.config=") for *_, name, _ in labels} <= set(every)


def test_mixed_models_are_distinguished_by_device():
    fleet = FleetFacts(gpus=(GpuFacts(node="gpu-1", uuid="GPU-9", model=H100),))
    _, by_hand = applied(cut(layout("gpu-1", 0, "1g.10gb", model=A100)), fleet).apply
    ((spec,),) = by_hand.manifest["mig-configs"].values()
    assert spec["device-filter"] == list(model_of(A100).pci_device_ids)
    assert not set(spec["device-filter"]) & set(model_of(H100).pci_device_ids)


def test_a_gpu_without_an_index_is_not_cut():
    unknown, known = cut(layout("gpu-1", None, "1g.10gb")), cut(layout("gpu-2", 0, "1g.10gb"))
    known = replace(known, id="known")
    one, other = all_applied((unknown, known))
    assert (only(one).command, only(one).manifest) == (None, None)
    assert "gpu-1" in only(one).note
    assert "node/gpu-2" in other.apply[0].command
    assert other.apply[0].manifest["kind"] == "ConfigMap"


def test_reserved_nodes_take_the_pods_that_the_fragment_makes(shell):
    found = only(applied(advice(RecommendedAction.RESERVE, nodes=("gpu-1", "gpu-2"))))
    taint, label = shell(found.command)
    assert taint == ["taint", "--overwrite", "nodes", "--", "gpu-1", "gpu-2", "gpuwatch.io/gpu-reserved=nlp:NoSchedule"]
    assert label == ["label", "node/gpu-1", "node/gpu-2", "gpuwatch.io/gpu-reserved=nlp", "--overwrite"]
    assert found.manifest["spec"]["nodeSelector"] == {"gpuwatch.io/gpu-reserved": "nlp"}
    (toleration,) = found.manifest["spec"]["tolerations"]
    assert (toleration["key"], toleration["value"]) == ("gpuwatch.io/gpu-reserved", "nlp")


def test_pods_that_run_are_annotated_without_a_restart(shell):
    found = only(applied(advice(RecommendedAction.TUNE, ENERGY, kind="Deployment", pods=("server-a", "server-b"))))
    pairs = [f"{key}={value}" for key, value in sorted(ENERGY.annotations.items())]
    assert shell(found.command) == [
        ["--namespace=nlp", "annotate", "pod/server-a", "pod/server-b", *pairs, "--overwrite"]
    ]
    assert found.manifest["spec"]["template"]["metadata"]["annotations"] == ENERGY.annotations


@pytest.mark.parametrize(
    "action",
    [
        RecommendedAction.ASK_OWNER,
        RecommendedAction.CHANGE_SETTING,
        RecommendedAction.RAISE_CPU,
        RecommendedAction.LOOK_AT_INPUT,
    ],
)
def test_what_needs_a_persons_own_action_gets_no_command(action):
    assert applied(advice(action, RecommendedChange(setting="--gpu-memory-utilization"))).apply == ()


NASTY = st.text(st.sampled_from("ab'\"$`;&|\\ \n(){}<>*?!#~-=é"), min_size=1, max_size=12)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=NASTY, namespace=NASTY, container=NASTY, each=st.sampled_from(EVERY))
def test_no_name_means_anything_to_the_shell(shell, name, namespace, container, each):
    """Names come from a Prometheus or an agent; the API server's rules for them are nothing to rely on."""
    target = replace(
        each.target,
        name=name,
        namespace=namespace,
        container=container,
        nodes=tuple(name for _ in each.target.nodes),
        pods=tuple(name for _ in each.target.pods),
    )
    change = replace(
        each.change,
        quota=each.change.quota and name,
        layouts=tuple(replace(layout, node=name) for layout in each.change.layouts),
    )
    found = applied(replace(each, target=target, change=change))
    verbs = {"patch", "apply", "cordon", "label", "taint", "annotate", "scale"}
    name, namespace = visible(name), visible(namespace)
    for command in (part.command for part in found.apply if part.command):
        for call in shell(command):
            place, verb = (call[0], call[1]) if call[0].startswith("--namespace=") else (None, call[0])
            assert place in (None, f"--namespace={namespace}")
            assert verb in verbs
            plain = call[call.index("--") :] if "--" in call else []
            assert verb == "apply" or name in plain or any(word.endswith(f"/{name}") for word in call), call
