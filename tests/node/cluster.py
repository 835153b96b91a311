"""A cluster of one real node, or two: control plane, kubelet, containerd and NVIDIA's device plugin.

Each node runs in a `Machine`, the control plane in that of the first. Only the GPUs are not real: the device plugin and
gpuwatch read the fake libnvidia-ml.
"""

import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import trustme
import yaml

from gpuwatch import IMAGE, __version__
from tests.cluster import binaries
from tests.deploy.tools import kubectl
from tests.fakes.libnvml import FakeDriver
from tests.image.base import run
from tests.node.machine import Machine, address_of, name_of
from tests.node.parts import KUBERNETES, NVIDIA
from tests.waiting import until

HERE = Path(__file__).parent
NODE = name_of(1)
PRODUCT = f"{IMAGE}:{__version__}"
"""As deploy/ calls it."""
ADDRESS, SERVICE = address_of(1), "10.96.0.1"
NUMBERS = (1, 2)
ISSUER = "https://kubernetes.default.svc.cluster.local"
CERTIFICATES = {  # file: (common name, organization)
    "admin": ("admin", "system:masters"),
    **{f"kubelet-{number}": (f"system:node:{name_of(number)}", "system:nodes") for number in NUMBERS},
    "apiserver-client": ("apiserver-kubelet-client", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
}
DEVICE_TAINTS = "--feature-gates=DRADeviceTaints=true,DRADeviceTaintRules=true"
"""Rules that keep pods off single devices; the API server serves them, the scheduler and a controller act on them."""
READY_SECONDS = 180.0


class Node(Machine):
    """The machine of one node with containerd, a kubelet and NVIDIA's device plugin; `keys`: those of its cluster."""

    def __init__(self, folder: Path, keys: Path, number: int = 1) -> None:
        super().__init__(folder, number)
        self.driver = FakeDriver(folder / "driver", gpus=8, model="H100")
        self._keys = keys
        self._programs = {**KUBERNETES.get(), **NVIDIA.get()}

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.driver.clear()
        super().__exit__(kind, error, trace)

    def load(self, image: str, name: str = "") -> None:
        """Have containerd know an image of buildah's, under another name if one is given."""
        archive = self.folder / "image.tar"
        archive.unlink(missing_ok=True)
        run("buildah", "push", "--quiet", image, f"oci-archive:{archive}:{name or image}")
        self.run("ctr", "--address", self.folder / "containerd.sock", "--namespace=k8s.io", "images", "import", archive)
        archive.unlink()

    def start_plugin(self, *options: str, **variables: str) -> None:
        """NVIDIA's device plugin, as its DaemonSet starts it."""
        variables = {**self.driver.env, "NODE_NAME": self.name, **variables}
        self.start(
            "device-plugin",
            self._programs["nvidia-device-plugin"],
            "--fail-on-init-error=true",
            "--device-list-strategy=envvar",
            "--device-discovery-strategy=nvml",
            *options,
            **variables,
        )

    def start_node(self) -> None:
        """containerd and the kubelet; the control plane is there."""
        runtime = self.folder / "nvidia-runc"
        runc = [sys.executable, "-S", HERE / "nvidia_runc.py", self.driver.library, self.driver.path]
        runtime.write_text(f'#!/bin/sh\nexec {" ".join(map(str, runc))} "$@"\n')
        runtime.chmod(0o755)
        network = {
            "cniVersion": "0.4.0",
            "name": "node",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": "cni0",
                    "isGateway": True,
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "ranges": [[{"subnet": f"10.98.{self.number}.0/24"}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "portmap", "capabilities": {"portMappings": True}, "snat": False},
            ],
        }
        network["plugins"] = network["plugins"][:1]
        self._write("cni/node.conflist", json.dumps(network))
        self._write("resolv.conf", "nameserver 127.0.0.1\n")
        (self.folder / "static").mkdir()
        self.start_containerd()
        self._load_pause()
        kubelet = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "readOnlyPort": 0,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": f"{self._keys}/ca.pem"},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": f"{self._keys}/server.pem",
            "tlsPrivateKeyFile": f"{self._keys}/server.key",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "enforceNodeAllocatable": [],
            "containerRuntimeEndpoint": f"unix://{self.folder}/containerd.sock",
            "resolvConf": str(self.folder / "resolv.conf"),
            "clusterDomain": "cluster.local",
            "clusterDNS": [ADDRESS],
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "staticPodPath": str(self.folder / "static"),
            "nodeStatusUpdateFrequency": "2s",
            "syncFrequency": "10s",
            "maxPods": 60,
        }
        self._write("kubelet.yaml", yaml.safe_dump(kubelet))
        self.start_kubelet()

    def start_containerd(self, runtime: str = "runc") -> None:
        """Also again after `stop("containerd")`, which ends no container; `runtime`: that of pods without a class."""
        text = (HERE / "containerd.toml").read_text().replace("FOLDER", str(self.folder))
        self._write("containerd.toml", text.replace("DEFAULT", runtime))
        self.start("containerd", "containerd", "--config", self.folder / "containerd.toml")
        answers = ("ctr", "--address", self.folder / "containerd.sock", "version")
        until(lambda: "Server" in self.run(*answers, check=False), "containerd answers", step=0.3)

    def start_kubelet(self) -> None:
        """Also again after `stop("kubelet")`; it answers when this returns."""
        self.start(
            "kubelet",
            self._programs["kubelet"],
            f"--config={self.folder}/kubelet.yaml",
            f"--kubeconfig={self._keys}/kubelet-{self.number}.kubeconfig",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            "--node-labels=nvidia.com/gpu.present=true",
            "-v=2",
        )
        healthy = ("busybox", "wget", "-q", "-O", "-", "http://127.0.0.1:10248/healthz")
        until(lambda: self.run(*healthy, check=False) == "ok", "the kubelet answers", READY_SECONDS, step=0.5)

    def _load_pause(self) -> None:
        """The image of a pod's sandbox, and one with a shell for work that does nothing."""
        for image, program, links in (("localhost/pause:1", "pause", ()), ("localhost/busybox:1", "busybox", SHELL)):
            place = self.folder / "images" / program
            (place / "bin").mkdir(parents=True)
            (place / "tmp").mkdir()
            shutil.copy("/bin/busybox", place / "bin/busybox")
            for link in ("sleep", *links):
                (place / "bin" / link).symlink_to("busybox")
            container = run("buildah", "from", "scratch")
            run("buildah", "copy", "--quiet", container, place, "/")
            command = '["/bin/sleep", "2147483647"]'
            run("buildah", "config", "--env", "PATH=/bin", "--entrypoint", "[]", "--cmd", command, container)
            run("buildah", "commit", "--quiet", "--rm", container, image)
            self.load(image)

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


class NodeCluster(Node):
    """The first node, and the control plane on it. Use as a context manager."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, folder / "keys")
        self.deployment = folder  # what was applied with -k

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            self._write_keys()
            self._start_control_plane()
            self.set_names({})
            self.start("dns", sys.executable, HERE / "dns.py", ADDRESS, self.folder / "names")
            self.start_node()
            until(self.is_ready, "the node is ready", READY_SECONDS, step=0.5)
        except BaseException:
            self.end()
            raise
        return self

    @contextmanager
    def second_node(self, folder: Path) -> Iterator[Node]:
        """A further node until the context ends, ready, in a machine of its own on the same network."""
        with Node(folder, self._keys, 2) as node:
            self.connect(node)
            node.start_node()
            until(lambda: self.is_ready(node.name), "the second node is ready", READY_SECONDS, step=0.5)
            try:
                yield node
            finally:
                self.kubectl("delete", "node", node.name)

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, check: bool = True) -> str:
        """As the cluster's administrator."""
        return self.run(kubectl(), f"--kubeconfig={self._keys}/admin.kubeconfig", *arguments, stdin=stdin, check=check)

    def get(self, *arguments: str) -> Any:
        """An object or a list of them."""
        return json.loads(self.kubectl("get", *arguments, "--output=json"))

    def apply(self, *objects: Mapping[str, Any]) -> None:
        """Make these."""
        self.kubectl("apply", "-f", "-", stdin="\n---\n".join(json.dumps(each) for each in objects))

    def set_names(self, addresses: Mapping[str, str]) -> None:
        """What the node's pods find by these names, and nothing else by a name."""
        self._write("names", "".join(f"{name} {address}\n" for name, address in addresses.items()))

    def allocatable(self, name: str = NODE) -> dict[str, int]:
        """NVIDIA's resources of a node."""
        found = self.get("node", name)["status"]["allocatable"]
        return {key: int(value) for key, value in found.items() if key.startswith("nvidia.com/")}

    def is_ready(self, name: str = NODE) -> bool:
        """Whether the kubelet of this node says so."""
        assert self.lives("kubelet"), f"the kubelet ended:\n{self.log('kubelet')}"
        nodes = (each for each in self.get("nodes")["items"] if each["metadata"]["name"] == name)
        conditions = {each["type"]: each["status"] for node in nodes for each in node["status"].get("conditions", [])}
        return conditions.get("Ready") == "True"

    def _start_control_plane(self) -> None:
        found, keys = binaries.get(), self._keys
        local = "http://127.0.0.1:"
        self.start(
            "etcd",
            found.etcd,
            f"--data-dir={self.folder}/etcd",
            f"--listen-client-urls={local}2379",
            f"--advertise-client-urls={local}2379",
            f"--listen-peer-urls={local}2380",
            "--log-level=warn",
            "--unsafe-no-fsync",
        )
        self.start(
            "kube-apiserver",
            found.apiserver,
            f"--etcd-servers={local}2379",
            "--secure-port=443",
            f"--advertise-address={ADDRESS}",
            f"--tls-cert-file={keys}/server.pem",
            f"--tls-private-key-file={keys}/server.key",
            f"--client-ca-file={keys}/ca.pem",
            f"--service-account-issuer={ISSUER}",
            f"--service-account-key-file={keys}/accounts.key",
            f"--service-account-signing-key-file={keys}/accounts.key",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            DEVICE_TAINTS,
            "--runtime-config=resource.k8s.io/v1beta2=true",
            "--allow-privileged",
            "--service-cluster-ip-range=10.96.0.0/24",
            f"--kubelet-client-certificate={keys}/apiserver-client.pem",
            f"--kubelet-client-key={keys}/apiserver-client.key",
            f"--kubelet-certificate-authority={keys}/ca.pem",
            "--kubelet-preferred-address-types=InternalIP",
        )
        until(lambda: self._is_serving(), "kube-apiserver is ready", READY_SECONDS, step=0.3)
        own = f"--kubeconfig={keys}/controller-manager.kubeconfig"
        self.start(
            "kube-controller-manager",
            self._programs["kube-controller-manager"],
            own,
            f"--root-ca-file={keys}/ca.pem",
            f"--service-account-private-key-file={keys}/accounts.key",
            "--use-service-account-credentials",
            DEVICE_TAINTS,
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        )
        own = f"{keys}/scheduler.kubeconfig"
        options = [f"--{name}kubeconfig={own}" for name in ("", "authentication-", "authorization-")]
        self.start(
            "kube-scheduler",
            self._programs["kube-scheduler"],
            *options,
            DEVICE_TAINTS,
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
        )

    def _is_serving(self) -> bool:
        assert self.lives("kube-apiserver"), f"kube-apiserver ended:\n{self.log('kube-apiserver')}"
        return self.kubectl("get", "--raw", "/readyz", check=False) == "ok"

    def _write_keys(self) -> None:
        self._keys.mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self._keys / "ca.pem")
        names = [f"kubernetes{suffix}" for suffix in ("", ".default", ".default.svc", ".default.svc.cluster.local")]
        places = [place for number in NUMBERS for place in (name_of(number), address_of(number))]
        server = authority.issue_cert(SERVICE, "127.0.0.1", *places, *names)
        server.private_key_pem.write_to_path(self._keys / "server.key")
        for blob in server.cert_chain_pems[:1]:
            blob.write_to_path(self._keys / "server.pem")
        trustme.CA(key_type=trustme.KeyType.RSA).private_key_pem.write_to_path(self._keys / "accounts.key")
        for name, (common, organization) in CERTIFICATES.items():
            issued = authority.issue_cert("client.test", common_name=common, organization_name=organization or "none")
            issued.private_key_pem.write_to_path(self._keys / f"{name}.key")
            issued.cert_chain_pems[0].write_to_path(self._keys / f"{name}.pem")
            cluster = {"server": f"https://{SERVICE}:443", "certificate-authority": f"{self._keys}/ca.pem"}
            user = {"client-certificate": f"{self._keys}/{name}.pem", "client-key": f"{self._keys}/{name}.key"}
            config = {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "node", "cluster": cluster}],
                "users": [{"name": name, "user": user}],
                "contexts": [{"name": "node", "context": {"cluster": "node", "user": name}}],
                "current-context": "node",
            }
            self._write(f"keys/{name}.kubeconfig", json.dumps(config))


SHELL = ("sh", "cp", "chmod", "echo", "cat", "ls", "true", "printf", "env")
