"""Whatever people set: valid objects for every Kubernetes the chart takes, and a pod that finds what it needs."""

import json

import kubernetes_validate
import pytest

from deploy.helm.generate import CHART
from gpuwatch.config import parse
from gpuwatch.config.yaml import decode
from gpuwatch.kube.objects import TAINT
from tests import fast_yaml
from tests.deploy.charts import CASES, VERSION, case, is_test, rendered, run
from tests.deploy.rendering import one, pod
from tests.deploy.schemas import complaints
from tests.seeds import a_third

GUARDED = 30
KINDS = ("Service", "Pod")
LATEST = int(kubernetes_validate.latest_version().split(".")[1])


def first_version():
    """The oldest that Chart.yaml takes."""
    words = fast_yaml.load((CHART / "Chart.yaml").read_text())["kubeVersion"]
    return int(words.removeprefix(">=1.").split(".")[0])


def enforces(name):
    remediation = case(name).get("remediation", {})
    return remediation.get("mode") == "enforce" or remediation.get("migrate", False)


def daemonset(found):
    (only,) = (each for each in found if each["kind"] == "DaemonSet")
    return only


def configuration(found):
    """What gpuwatch makes of the ConfigMap."""
    (text,) = (each["data"]["gpuwatch.yaml"] for each in found if "gpuwatch.yaml" in each.get("data", {}))
    return parse(decode(text), "ConfigMap")


@pytest.mark.parametrize(
    "minor",
    [pytest.param(first_version(), marks=pytest.mark.slow), pytest.param(GUARDED, marks=pytest.mark.slow), LATEST],
)
def test_objects_are_valid(minor):
    """In the oldest version, the newest, and the one from which on more can be made. Most cases share most objects."""
    names = [name for name in CASES if minor >= GUARDED or not enforces(name)]
    found = {json.dumps(each): each for name in names for each in rendered(case(name), version=f"1.{minor}")}
    assert [words for each in found.values() for words in complaints(each, f"1.{minor}")] == []


@pytest.mark.parametrize("name", a_third(CASES))
def test_lint_is_content_with_the_values(name):
    said = run("lint", "--strict", CHART, "--kube-version", VERSION, values=case(name))
    assert said.code == 0, said.out + said.error


@pytest.mark.parametrize("name", a_third(CASES))
def test_gpuwatch_takes_the_configuration(name):
    config = configuration(rendered(case(name)))
    xids = case(name).get("config", {}).get("remediation", {}).get("xids", {})
    assert config.remediation.xids == xids
    assert config.agent.wait_for_driver


@pytest.mark.parametrize("name", a_third(CASES))
def test_selectors_hold_and_do_not_change(name):
    """A selector cannot be changed later, so no value may reach it; the monitor and the policy look for the same."""
    found = rendered(case(name), release="one")
    called = case(name).get("nameOverride", "gpuwatch")
    selector = {"app.kubernetes.io/name": called, "app.kubernetes.io/instance": "one"}
    spec = daemonset(found)["spec"]
    assert spec["selector"]["matchLabels"] == selector
    assert selector.items() <= spec["template"]["metadata"]["labels"].items()
    for each in found:
        if each["kind"] == "PodMonitor":
            assert each["spec"]["selector"]["matchLabels"] == selector
        if each["kind"] == "NetworkPolicy":
            assert each["spec"]["podSelector"]["matchLabels"] == selector


@pytest.mark.parametrize("name", CASES)
def test_mounts_have_volumes_and_volumes_have_mounts(name):
    spec = daemonset(rendered(case(name)))["spec"]["template"]["spec"]
    mounted = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]}
    for container in spec["containers"]:
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        names = [variable["name"] for variable in container["env"]]
        assert len(paths) == len(set(paths))
        assert len(names) == len(set(names))


@pytest.mark.parametrize("name", CASES)
def test_probes_and_monitors_name_ports_that_listen(name):
    """A port is said once, in the configuration."""
    found = rendered(case(name))
    config = configuration(found)
    listens = {"agent": config.agent.listen, "remediator": config.remediation.listen, "tuner": config.tuning.listen}
    for container in daemonset(found)["spec"]["template"]["spec"]["containers"]:
        for port in container.get("ports", ()):
            assert listens[container["name"]].endswith(f":{port['containerPort']}")
            assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in ("startup", "readiness", "liveness")} == {
                port["name"]
            }


@pytest.mark.parametrize("name", a_third(CASES))
def test_everything_bears_the_release_s_labels_and_its_names(name):
    found = [each for each in rendered(case(name), release="one", namespace="spaces") if not is_test(each)]
    extra = [each["metadata"]["name"] for each in case(name).get("extraManifests", ())]
    for each in found:
        called, labels = each["metadata"]["name"], each["metadata"].get("labels", {})
        if called.replace("one-", "{{ .Release.Name }}-") in extra:
            continue
        assert labels["app.kubernetes.io/instance"] == "one", called
        assert called.startswith(case(name).get("fullnameOverride", "one-gpuwatch")), called
        assert each["metadata"].get("namespace", "spaces") in ("spaces", "monitoring"), called


def test_the_namespace_and_the_account_are_in_the_policies():
    found = rendered({"remediation": {"mode": "enforce"}}, release="one", namespace="spaces")
    conditions = {
        condition["expression"]
        for each in found
        if each["kind"] == "ValidatingAdmissionPolicy"
        for condition in each["spec"]["matchConditions"]
    }
    assert conditions == {"request.userInfo.username == 'system:serviceaccount:spaces:one-gpuwatch-remediator'"}


def test_a_foreign_account_is_bound_and_not_made():
    found = rendered(case("names"), namespace="spaces")
    assert [each["metadata"]["name"] for each in found if each["kind"] == "ServiceAccount"] == ["gpus"]
    subjects = [subject for each in found for subject in each.get("subjects", ())]
    assert subjects
    assert {(subject["name"], subject["namespace"]) for subject in subjects} == {("of-ours", "spaces")}


@pytest.mark.parametrize(("share", "lists"), [("10%", True), (2, False), ("2", False)])
def test_only_a_budget_in_percent_needs_a_list_of_nodes(share, lists):
    values = {"remediation": {"mode": "observe"}, "config": {"remediation": {"budget": {"max_unavailable": share}}}}
    roles = [each for each in rendered(values) if each["kind"] == "ClusterRole"]
    assert any("list" in rule["verbs"] for each in roles for rule in each["rules"]) == lists


@pytest.mark.parametrize(
    ("annotation", "allowed"),
    [("", "[]"), ("gpuwatch.io/reboot", "[]"), ("example.com/reboot", '["example.com/reboot"]')],
)
def test_the_policy_knows_the_annotation_of_the_handover(annotation, allowed):
    config = {"remediation": {"handover": {"annotation": annotation}}}
    policy = one(
        rendered({"remediation": {"mode": "enforce"}, "config": config}),
        "ValidatingAdmissionPolicy",
        "gpuwatch-own-node",
    )
    (handover,) = (each["expression"] for each in policy["spec"]["variables"] if each["name"] == "handover")
    assert handover == allowed


@pytest.mark.parametrize("named", ["", "gpu-operator/nvidia-device-plugin-daemonset"])
def test_the_policy_knows_the_device_plugin_that_may_be_restarted(named):
    config = {"remediation": {"restart_plugin": named}}
    values = {"remediation": {"mode": "enforce", "drain": True}, "config": config}
    policy = one(rendered(values), "ValidatingAdmissionPolicy", "gpuwatch-own-pods")
    (plugin,) = (each["expression"] for each in policy["spec"]["variables"] if each["name"] == "plugin")
    assert plugin == f'"{named}"'


@pytest.mark.parametrize("off", ["off", False])
def test_off_may_be_unquoted(off):
    """YAML 1.1, which Helm reads, takes `off` for false."""
    values = {"remediation": {"mode": off}, "tuner": {"mode": off}}
    assert rendered(values) == rendered()


def test_simulated_pods_touch_nothing_of_the_host():
    spec = daemonset(rendered({"source": "sim:mig", "klog": {"enabled": False}, "remediation": {"mode": "observe"}}))
    told = spec["spec"]["template"]["spec"]
    assert not [volume for volume in told["volumes"] if "hostPath" in volume]
    assert not {"runtimeClassName", "nodeSelector"} & told.keys()
    assert "--source=sim:mig" in told["containers"][0]["args"]


@pytest.mark.parametrize("name", a_third(CASES))
def test_the_test_pod_is_none_of_the_daemonset_s_and_needs_no_privilege(name):
    found = rendered(case(name))
    tests = {each["kind"]: each for each in found if is_test(each)}
    if case(name).get("web"):
        assert tests == {}  # it would need a password
        return
    assert tuple(tests) == KINDS
    selector = daemonset(found)["spec"]["selector"]["matchLabels"]
    assert tests["Service"]["spec"]["selector"] == selector
    assert not selector.items() <= tests["Pod"]["metadata"]["labels"].items()
    spec = tests["Pod"]["spec"]
    assert "volumes" not in spec
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert spec["automountServiceAccountToken"] is False
    (port,), service = tests["Service"]["spec"]["ports"], tests["Service"]["metadata"]
    assert f"//{service['name']}.{service['namespace']}.svc:{port['port']}" in container["args"][0]


def test_the_test_pod_runs_where_every_gpu_node_is_quarantined():
    """Our taint, our cordon, the GPU operator's usual taint; not a node that is away, where it would wait for ever."""
    (spec,) = (each["spec"] for each in rendered() if is_test(each) and each["kind"] == "Pod")
    tolerated = {each["key"] for each in spec["tolerations"] if each["operator"] == "Exists"}
    assert tolerated == {TAINT, "node.kubernetes.io/unschedulable", "nvidia.com/gpu"}
    assert len(spec["tolerations"]) == len(tolerated)


def test_the_test_pod_may_pass_the_network_policy():
    found = rendered(case("everything"))
    (labels,) = (each["metadata"]["labels"] for each in found if each["kind"] == "Pod")
    (rule,) = one(found, "NetworkPolicy")["spec"]["ingress"]
    assert rule["from"] == [*case("everything")["networkPolicy"]["from"], {"podSelector": {"matchLabels": labels}}]
    ports = {port["name"] for each in pod(found)["spec"]["containers"] for port in each.get("ports", ())}
    assert {port["port"] for port in rule["ports"]} == ports


def test_tls_reaches_probes_and_prometheus():
    found = rendered(case("tls"))
    for container in pod(found)["spec"]["containers"]:
        variables = {each["name"]: each.get("value") for each in container["env"]}
        assert variables[f"GPUWATCH_{container['name'].upper()}_WEB_CONFIG"] == "/etc/gpuwatch-web/web.yaml"
        assert container["livenessProbe"]["httpGet"]["scheme"] == "HTTPS"
        assert container["livenessProbe"]["httpGet"]["httpHeaders"] == case("tls")["web"]["probeHeaders"]
    endpoints = one(found, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert {each["scheme"] for each in endpoints} == {"https"}
    assert all(each["basicAuth"] == case("tls")["podMonitor"]["basicAuth"] for each in endpoints)
