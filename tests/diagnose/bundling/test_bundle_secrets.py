"""No secret leaves with a bundle: each is planted where such secrets live, and looked for in every byte of it."""

import base64
import gzip
import json
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from gpuwatch.config import AgentConfig, Config, RemediationConfig
from gpuwatch.diagnose.bundling.bundle import write_bundle
from gpuwatch.diagnose.host.exporters import Exporter
from gpuwatch.model.event import ActionEvent, Result
from gpuwatch.model.snapshot import GpuProcess
from gpuwatch.model.view import Events
from tests.diagnose.bundling.bundles import contents
from tests.diagnose.hosts import Host

JWT = "eyJhbGciOiJSUzI1NiIsImtpZCI6IkFCQyJ9.eyJzdWIiOiJzeXN0ZW06c2VydmljZWFjY291bnQifQ.c2lnbmF0dXJlLXBsYW50ZWQ"
PEM = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDPlantedPrivateKey"
BCRYPT = "$2y$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy"

SECRETS = {
    "service account token": JWT,
    "kubeconfig token": "kubeconfig-planted-01-token",
    "private key": PEM,
    "containerd registry password": "planted-02-registry-password",
    "containerd registry auth": base64.b64encode(b"robot:planted-03").decode(),
    "docker auth": base64.b64encode(b"me:planted-04-docker").decode(),
    "proxy password": "planted-05-proxy",
    "AWS key id": "AKIAIOSFODNN7EXAMPLE",
    "AWS secret": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "process environment": "planted-06-environment",
    "process command line": "planted-07-argument",
    "CDI environment": "planted-08-cdi-value",
    "bcrypt hash": BCRYPT,
    "last-applied annotation": "planted-09-last-applied",
    "kernel command line": "planted-10-cmdline",
    "short kernel parameter": "planted-11-ip-config",
    "HTTP header": "planted-12-header-value",
    "bearer in a log": "planted-13-bearer-token-of-a-log",
    "SSH key": "AAAAB3NzaC1yc2EAAAADAQABAAABgQDPlanted14",
    "OpenSSH private key": "b3BlbnNzaC1rZXktdjEAAAAABG5vbmUPlanted15",
    "cloud metadata token": "AQAEAPlanted16MetadataTokenOfTheInstance1234567890abcdef==",
    "modprobe option": "planted-17-module-option",
    "option of our module": "planted-18-nvreg",
    "hosts file": "planted-19-hosts",
    "NVML process name": "planted-20-nvml-argument",
    "finding": "planted-21-in-a-finding",
    "device plugin variable": "planted-22-plugin-env",
    "kubelet checkpoint": "planted-23-alloc-response",
    "static pod URL": "planted-24-static-pod-url",
    "validation file": "planted-25-of/the+validator",
    "docker proxy": "planted-26-docker-proxy",
    "annotation of others": "planted-27-foreign-annotation",
    "Google key": "AIzaSyPlanted28PlantedPlantedPlanted000",
    "fabric manager log": "planted-29-fm-password",
    "pod annotation": "planted-30-pod-annotation",
    "URL of the configuration": "planted-31-web-password",
    "short password": "pw33!",
    "NGC key": "nvapi-Planted32PlantedPlantedPlanted",
}


def plant_files(host: Host) -> None:
    """In files of the host, those that are taken and those that are not."""
    secret = SECRETS
    host.write("var/run/secrets/kubernetes.io/serviceaccount/token", JWT)
    host.write("etc/kubernetes/kubelet.conf", f"users:\n- user:\n    token: {secret['kubeconfig token']}\n")
    host.write("root/.kube/config", f"token: {secret['kubeconfig token']}\n")
    host.write("etc/kubernetes/pki/key.pem", f"-----BEGIN PRIVATE KEY-----\n{PEM}\n-----END PRIVATE KEY-----\n")
    host.write("root/.ssh/id_rsa", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{secret['OpenSSH private key']}\n")
    host.write("root/.docker/config.json", json.dumps({"auths": {"nvcr.io": {"auth": secret["docker auth"]}}}))
    host.write("proc/4711/environ", f"TOKEN={secret['process environment']}\0")
    host.write("proc/4711/cmdline", f"train\0--wandb-key={secret['process command line']}\0")
    host.write("proc/4711/comm", "kubelet\n")
    host.write("etc/hosts", f"10.0.0.1 db # password {secret['hosts file']}\n")
    host.write("etc/gpuwatch/web.yaml", f"basic_auth_users:\n  me: {BCRYPT}\n")
    cmdline = (host.root / "proc/cmdline").read_text().strip()
    host.write(
        "proc/cmdline",
        f"{cmdline} password={secret['kernel command line']} ip={secret['short kernel parameter']} quiet\n",
    )
    host.write(
        "etc/modprobe.d/wifi.conf",
        f"options wifi password={secret['modprobe option']}\n# {secret['modprobe option']}\n"
        f'options nvidia NVreg_RegistryDwords="token={secret["option of our module"]}"\nblacklist nouveau\n',
    )
    host.write("etc/cdi/nvidia-planted.yaml", cdi_spec(secret["CDI environment"]))
    host.write(
        "var/log/fabricmanager.log",
        f"[x] [ERROR] password={secret['fabric manager log']} pwd: {secret['short password']}\n",
    )
    host.write("run/nvidia/validations/planted-ready", f"API_TOKEN={secret['validation file']}\nIS_HOST_DRIVER=true\n")
    host.write("etc/docker/daemon.json", json.dumps(docker_daemon()))
    host.write("etc/crio/crio.conf.d/planted.conf", f'[crio.image]\nglobal_auth = "{secret["docker auth"]}"\n')
    host.write("var/lib/kubelet/config.yaml", kubelet_config())
    host.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", checkpoint())
    with (host.root / "etc/containerd/config.toml").open("a") as file:
        file.write(containerd_registry())


def cdi_spec(value: str) -> str:
    return (
        "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\n"
        f"annotations: {{note: {value}}}\n"
        f"containerEdits:\n  env: [NGC_KEY={value}]\n"
        f"  hooks: [{{hookName: createContainer, path: /usr/bin/nvidia-cdi-hook, args: [x, --key={value}]}}]\n"
        f"devices:\n- name: all\n  containerEdits:\n    env: [A={value}]\n    deviceNodes: [{{path: /dev/nvidia0}}]\n"
    )


def containerd_registry() -> str:
    plugin = "io.containerd.grpc.v1.cri"
    return (
        f'\n[plugins."{plugin}".registry.configs."nvcr.io".auth]\n'
        f'  username = "$oauthtoken"\n  password = "{SECRETS["containerd registry password"]}"\n'
        f'  auth = "{SECRETS["containerd registry auth"]}"\n'
        f'[plugins."{plugin}".registry.headers]\n  X-Auth = ["{SECRETS["HTTP header"]}"]\n'
        f'[proxy_plugins.x]\n  address = "http://me:{SECRETS["proxy password"]}@proxy:3128"\n'
    )


def docker_daemon() -> dict[str, object]:
    proxy = f"http://u:{SECRETS['docker proxy']}@proxy:3128"
    return {
        "runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": [proxy]}},
        "proxies": {"http-proxy": proxy},
    }


def kubelet_config() -> str:
    return (
        "kind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///run/containerd/containerd.sock\n"
        f"staticPodURL: https://u:{SECRETS['static pod URL']}@pods\n"
        f"staticPodURLHeader: {{X: [{SECRETS['HTTP header']}]}}\n"
    )


def checkpoint() -> str:
    answer = base64.b64encode(f"TOKEN={SECRETS['kubelet checkpoint']}".encode()).decode()
    entry = {"PodUID": "1", "ContainerName": "c", "ResourceName": "nvidia.com/gpu", "AllocResp": answer}
    return json.dumps({"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": {}}, "Checksum": 1})


def plant_facts(host: Host) -> None:
    """In what the driver, the API server and others told."""
    secret = SECRETS
    name = f"/usr/bin/python3 train.py --api-key {secret['NVML process name']}"
    host.gpu(0, processes=(GpuProcess(pid=4711, type="compute", name=name),))
    assert host.view is not None
    assert host.cluster is not None
    statuses = tuple(replace(each, detail=f"password={secret['finding']}") for each in host.view.snapshot.statuses)
    host.view = replace(host.view, snapshot=replace(host.view.snapshot, statuses=statuses))
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": f'{{"env": "{secret["last-applied annotation"]}"}}',
        "corp.example/vault": secret["annotation of others"],
        "nvidia.com/note": f"ngc key {secret['NGC key']}",
    }
    pods = tuple(replace(pod, annotations={"a.example/b": secret["pod annotation"]}) for pod in host.cluster.pods or ())
    host.cluster = replace(
        host.cluster,
        node=replace(host.cluster.node, annotations=annotations),
        pods=pods,
        plugin_environment={"DP_DISABLE_HEALTHCHECKS": "xids", "DP_OTHER": secret["device plugin variable"]},
        unseen={"pods": f"failed: X-Aws-Ec2-Metadata-Token: {secret['cloud metadata token']}"},
    )
    host.exporters = (Exporter(port=9400, error=f"401, Authorization: Basic {secret['docker auth']}"),)
    host.config = Config(
        agent=AgentConfig(web_config="/etc/gpuwatch/web.yaml"),
        remediation=RemediationConfig(
            kubeconfig="/root/.kube/config", foreign=(f"https://x:{secret['URL of the configuration']}@y",)
        ),
    )
    log = host.root / "gpuwatch/kernel.log"
    lines = (
        f"nvidia: token for bearer: Bearer {secret['bearer in a log']}",
        f"nvidia: AWS {secret['AWS key id']} aws_secret_access_key={secret['AWS secret']}",
        f"nvidia: ssh-rsa {secret['SSH key']} me@host",
        f"nvidia: key {secret['Google key']} and {JWT}",
        f"nvidia: {BCRYPT}",
    )
    log.write_text(log.read_text() + "".join(f"[ 2000.00000{n}] {line}\n" for n, line in enumerate(lines)))


class Planted(NamedTuple):
    """What there was to leak, and what was handed out."""

    there: bytes
    archive: bytes


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    place = tmp_path_factory.mktemp("secrets")
    host = Host(place / "host")
    plant_files(host)
    plant_facts(host)
    detail = f"https://x:{SECRETS['URL of the configuration']}@y: Authorization: Bearer {SECRETS['bearer in a log']}"
    failed = ActionEvent(
        at=1.0, actor="operator", action="evict", target="pod/a/b", result=Result.FAILED, detail=detail
    )
    all_told = contents(host, events=Events(actions=(failed,)))
    files = b"".join(path.read_bytes() for path in host.root.rglob("*") if path.is_file())
    write_bundle(place / "case.tgz", all_told)
    return Planted(files + msgspec.json.encode(all_told), gzip.decompress((place / "case.tgz").read_bytes()))


@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_is_in_no_byte_of_the_bundle(planted, kind):
    secret = SECRETS[kind].encode()
    hidden = base64.b64encode(f"TOKEN={SECRETS['kubelet checkpoint']}".encode())
    assert (hidden if kind == "kubelet checkpoint" else secret) in planted.there
    assert secret not in planted.archive
    assert hidden not in planted.archive


def test_what_is_reported_in_its_place_is_still_of_use(planted):
    for words in (
        b"quiet", b"blacklist nouveau", b"nvidia-container-runtime", b"IS_HOST_DRIVER=true", b"/usr/bin/python3",
        b"DP_DISABLE_HEALTHCHECKS", b"unix:///run/containerd/containerd.sock", b"/dev/nvidia0", b"password=[redacted]",
    ):  # fmt: skip
        assert words in planted.archive, words


def test_a_file_whose_name_is_a_secret_is_left_out(tmp_path):
    names = ("ghp_planted31planted31planted31planted31", "token=planted-32-in-a-name", "AKIAIOSFODNN7PLANTED")
    host = Host(tmp_path / "host")
    for name in names:
        host.write(f"run/nvidia/validations/{name}", "IS_HOST_DRIVER=true\n")
        host.write(f"etc/cdi/{name}/nvidia.yaml", "cdiVersion: 0.6.0\n")
    written = write_bundle(tmp_path / "case.tgz", contents(host))
    packed = gzip.decompress((tmp_path / "case.tgz").read_bytes())
    assert [name for name in names if name.encode() in packed] == []
    said = {why for path, why in written.missing.items() if path.startswith("run/nvidia/validations/")}
    assert said == {"left out: its name looks like a secret"}
