"""What cannot be meant is refused before anything is installed, with the path of the value or what to set instead."""

import re
import shutil

import pytest
import yaml

from deploy.helm.generate import CHART
from deploy.helm.values import FILE, documented
from tests import fast_yaml
from tests.deploy.charts import VERSION, refusal, rendered, run, setting
from tests.seeds import a_third

OLD = "1.29"

REFUSED = [
    ("tolerance", [], "'tolerance' not allowed"),
    ("image.name", "gpuwatch", "at '/image': additional properties 'name' not allowed"),
    ("image.pullPolicy", "Sometimes", "at '/image/pullPolicy': value must be one of 'Always'"),
    ("image.tag", "a b", "at '/image/tag'"),
    ("image.digest", "sha256:12", "at '/image/digest'"),
    ("imagePullSecrets", ["registry"], "at '/imagePullSecrets/0': got string, want object"),
    ("fullnameOverride", "Gpu_Watch", "at '/fullnameOverride'"),
    ("source", "nvidia-smi", "at '/source'"),
    ("config.agent.intervall", 2, "at '/config/agent': additional properties 'intervall' not allowed"),
    ("config.agent.interval", "2s", "at '/config/agent/interval': got string, want number"),
    ("config.alerts", {}, "at '/config': additional properties 'alerts' not allowed"),
    ("config.metrics.profiles", ["dcgm"], "at '/config/metrics/profiles/0': value must be one of 'dcgm-4.8'"),
    ("config.remediation.checks", {"gpu_lost": "tint"}, "at '/config/remediation/checks/gpu_lost'"),
    ("config.remediation.drain.windows", [{"start": "08:00"}], "missing property 'end'"),
    ("agent.resources.limit", {"cpu": 1}, "at '/agent/resources': additional properties 'limit' not allowed"),
    ("agent.resources.limits", {"memory": "1 GB"}, "at '/agent/resources/limits/memory'"),
    ("agent.extraEnv", {"TZ": "UTC"}, "at '/agent/extraEnv': got object, want array"),
    ("agent.extraVolumeMounts", [{"name": "driver"}], "at '/agent/extraVolumeMounts/0': missing property 'mountPath'"),
    ("remediation.mode", "on", "at '/remediation/mode': value must be one of 'off', 'observe', 'enforce'"),
    ("remediation.mode", True, "at '/remediation/mode'"),
    ("remediation.drain", "yes", "at '/remediation/drain': got string, want boolean"),
    ("tuner.mode", "recommend", "at '/tuner/mode': value must be one of 'off', 'observe', 'enforce'"),
    ("klog", True, "at '/klog': got boolean, want object"),
    ("podMonitor.interval", "15", "at '/podMonitor/interval'"),
    ("podMonitor.relabelings", [{"source": "a"}], "at '/podMonitor/relabelings/0': additional properties 'source'"),
    ("hostPaths.kubelet", "var/lib/kubelet", "at '/hostPaths/kubelet'"),
    ("hostPaths.kubelet", "/var/lib/kubelet/", "at '/hostPaths/kubelet'"),
    ("nodeSelector", {"gpu": True}, "at '/nodeSelector/gpu': got boolean, want string"),
    ("tolerations", [{"operator": "Any"}], "at '/tolerations/0/operator': value must be one of 'Exists', 'Equal'"),
    ("affinity.nodes", {}, "at '/affinity': additional properties 'nodes' not allowed"),
    ("updateStrategy.type", "Recreate", "at '/updateStrategy/type': value must be one of 'RollingUpdate'"),
    ("terminationGracePeriodSeconds", -1, "at '/terminationGracePeriodSeconds'"),
    ("extraManifests", [{"kind": "Secret"}], "at '/extraManifests/0': missing property 'apiVersion'"),
    ("config.remediation.mode", "enforce", "config.remediation.mode is set: "),
    ("config.remediation.mode", False, "at '/config/remediation/mode': value must be one of"),
    ("config.remediation.budget.namespace", "slots", "config.remediation.budget.namespace is set: "),
    ("config.remediation.kubeconfig", "/root/config", "config.remediation.kubeconfig is set: "),
    ("config.remediation.node_name", "gpu-1", "config.remediation.node_name is set: "),
    ("config.tuning.mode", "observe", "config.tuning.mode is set: "),
    ("config.tuning.kubeconfig", "/root/config", "config.tuning.kubeconfig is set: "),
    ("config.tuning.node_name", "gpu-1", "config.tuning.node_name is set: "),
    ("config.agent.socket", "/tmp/sock", "config.agent.socket is set: "),
    ("config.agent.web_config", "/web.yaml", "config.agent.web_config is set: "),
    ("config.remediation.web_config", "/web.yaml", "config.remediation.web_config is set: "),
    ("config.tuning.web_config", "/web.yaml", "config.tuning.web_config is set: "),
    ("config.state_dir", "/data", "config.state_dir is set: "),
    ("config.agent.listen", "everywhere", "config.agent.listen names no port; say ADDRESS:PORT"),
    ("remediation", {"mode": "observe", "devices": True}, "remediation.mode is observe: only enforce taints"),
    ("remediation", {"mode": "observe", "drain": True}, "remediation.mode is observe: only enforce evicts"),
]
"""Path, wrong value, words of the refusal."""
REFUSALS = [f"{path}={value}" for path, value, _ in REFUSED]


@pytest.mark.parametrize(
    ("path", "value", "words"), a_third(REFUSED, 3), ids=[f"{path}={value}" for path, value, _ in REFUSED]
)
def test_a_wrong_value_is_refused(path, value, words):
    assert words in refusal(setting(path, value))


@pytest.mark.parametrize("value", a_third(each.name for each in documented(FILE.read_text())))
def test_every_value_has_a_type(value):
    """Nothing that can be set takes just anything."""
    wrong = 7.5 if value != "config" else []
    path = "/" + value.replace(".", "/")
    assert f"at '{path}'" in refusal(setting(value, wrong))


def test_enforce_is_refused_where_no_policy_can_guard_it_unless_that_is_accepted():
    enforce = {"remediation": {"mode": "enforce"}}
    assert "before 1.30" in refusal(enforce, version=OLD)
    assert "remediation.acceptUnguarded=true" in refusal(enforce, version=OLD)
    accepted = rendered({"remediation": {"mode": "enforce", "acceptUnguarded": True}}, version=OLD)
    kinds = {each["kind"] for each in accepted}
    assert "ValidatingAdmissionPolicy" not in kinds
    assert "ClusterRole" in kinds


def test_accepting_it_changes_nothing_where_policies_guard_it():
    enforce = {"remediation": {"mode": "enforce"}}
    accepted = {"remediation": {"mode": "enforce", "acceptUnguarded": True}}
    assert rendered(accepted) == rendered(enforce)


def test_simulated_faults_never_reach_real_nodes():
    assert "use observe" in refusal({"source": "sim", "remediation": {"mode": "enforce"}})


def test_what_simulated_gpus_do_never_sets_the_clocks_of_real_ones():
    assert "use observe" in refusal({"source": "sim", "tuner": {"mode": "enforce"}})


@pytest.mark.parametrize("interval", [1.5, 2])
def test_a_tuner_that_acts_polls_each_second(interval):
    values = {"tuner": {"mode": "enforce"}, "config": {"agent": {"interval": interval}}}
    assert "config.agent.interval is above 1" in refusal(values)
    assert rendered({**values, "tuner": {"mode": "observe"}})


@pytest.mark.parametrize("mode", ["observe", "enforce"])
def test_looking_and_tuning_need_no_new_kubernetes(mode):
    assert rendered({"remediation": {"mode": "observe"}, "tuner": {"mode": mode}}, version="1.25")


@pytest.mark.parametrize("enabled", [True, False])
def test_it_can_be_part_of_another_chart(tmp_path, enabled):
    """Helm then adds `global`, and by custom a condition switches it on."""
    shutil.copytree(CHART, tmp_path / "charts/gpuwatch")
    dependency = {"name": "gpuwatch", "version": "*", "condition": "gpuwatch.enabled"}
    chart = {"apiVersion": "v2", "name": "fleet", "version": "1.0.0", "dependencies": [dependency]}
    (tmp_path / "Chart.yaml").write_text(yaml.safe_dump(chart))
    values = {"global": {"site": "east"}, "gpuwatch": {"enabled": enabled, "klog": {"enabled": True}}}
    said = run("template", "ours", tmp_path, values=values)
    assert said.code == 0, said.error
    assert ("name: ours-gpuwatch" in said.out) == enabled
    assert ("SYSLOG" in said.out) == enabled


def test_an_older_kubernetes_than_the_chart_s_is_refused():
    assert "requires kubeVersion" in refusal({}, version="1.24")


README = (CHART / "README.md").read_text()
"""What it tells people to set."""


@pytest.mark.parametrize("told", a_third(re.findall(r"^\| `([\w.]+=\w+)` \|", README, re.MULTILINE)))
def test_a_switch_that_the_page_names_changes_something(told):
    more = {"remediation": {"mode": "enforce"}} if told.startswith("remediation.drain") else {}
    said = run("template", "gpuwatch", CHART, "--kube-version", VERSION, "--set", told, values=more)
    assert said.code == 0, said.error
    assert said.out != run("template", "gpuwatch", CHART, "--kube-version", VERSION, values=more).out


def test_the_example_on_the_page_is_taken():
    (example,) = re.findall(r"^```yaml\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    assert rendered(fast_yaml.load(example)) != rendered()


def test_the_page_names_files_that_are_there():
    named = re.findall(r"`(ci/[\w-]+\.yaml)`", README)
    assert named
    assert all((CHART / file).is_file() for file in named)
