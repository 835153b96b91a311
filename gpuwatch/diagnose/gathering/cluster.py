"""Reads this node's objects from the API server, with this process's permissions, and names what it may not read.

All requests are reads. A Node that may belong to another machine is not used: operators choose the names of Nodes.
"""

import base64
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gpuwatch.diagnose.gathering.survey import SurveyReader
from gpuwatch.diagnose.model import ClusterFacts
from gpuwatch.host.plain_file import content, opened
from gpuwatch.kube.credentials import SERVICE_ACCOUNT, NoCluster, credentials_source
from gpuwatch.kube.errors import ApiCall, Forbidden, KubeError, NotFound, Unavailable
from gpuwatch.kube.objects import NodeObject
from gpuwatch.kube.transport import Transport
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.model.snapshot import Host, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.remediation.planning.evidence import identity_mismatch

PLUGIN = "device-plugin"
PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
"""The label that chooses one of several configurations of the plugin."""

KUBECONFIGS = ("/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/kubeconfig")
"""The kubelet's own: where kubeadm, and where most clouds, put it."""

NODE_USER = "system:node:"
_COMMON_NAME = re.compile(rb"\x06\x03\x55\x04\x03[\x0c\x13](.)", re.DOTALL)
"""In DER: the OID 2.5.4.3, then a UTF8String or PrintableString and its length."""

Answer = TypeVar("Answer")


class Credentials(NamedTuple):
    """`kubeconfig` empty: as kubectl would choose; `node`: of the kubelet that owns them; `name`: for messages."""

    kubeconfig: str
    name: str
    node: str | None = None


def read_cluster(
    node_name: str,
    seconds: float,
    *,
    host: Host,
    kubeconfig: str = "",
    environment: Mapping[str, str] = os.environ,
    root: Path | None = Path("/"),
    names: tuple[str, ...] | None = None,
) -> ClusterFacts:
    """What the API server reports of the Node of the machine `host`, within about `seconds`.

    `node_name` empty: NODE_NAME, else the kubelet's own name, else a Node of this host's name (`names`).
    `root` None: the kubelet's own kubeconfig is not used; it may name a program to run.

    Raises:
        NoCluster: no API server is known.
        GpuwatchError: it does not answer, has no Node for this machine, or the Node of that name is another machine's.
    """
    deadline = time.monotonic() + seconds
    credentials = find_credentials(kubeconfig, environment, root)
    transport = Transport(credentials.kubeconfig, read_seconds=max(0.1, seconds / 2))
    try:
        given = node_name or environment.get("NODE_NAME", "") or credentials.node
        if names is None:
            hostname = socket.gethostname().lower()
            names = tuple(dict.fromkeys((hostname, hostname.partition(".")[0])))
        reader, node = _own_node(transport, (given,) if given else names, host, is_guess=not given)
        return _survey(reader, node, credentials.name, deadline)
    finally:
        transport.close()


def find_credentials(kubeconfig: str, environment: Mapping[str, str], root: Path | None) -> Credentials:
    """As kubectl finds them; else the kubelet's, which may read its own Node and pods."""
    try:
        found = credentials_source(kubeconfig, environment)
    except NoCluster:
        own = None if kubeconfig or root is None else kubelet_kubeconfig(root)
        if own is None:
            raise
        return Credentials(str(own), f"the kubelet's own kubeconfig, {own}", node_of(own))
    if found == str(SERVICE_ACCOUNT):
        return Credentials("", "the pod's service account")
    return Credentials(found, found, node_of(Path(found)))


def kubelet_kubeconfig(root: Path = Path("/")) -> Path | None:
    """The first of KUBECONFIGS that this process may read; None where there is none."""
    for path in KUBECONFIGS:
        try:
            with opened(root / path.lstrip("/")):
                return root / path.lstrip("/")
        except OSError:
            continue
    return None


def node_of(kubeconfig: Path) -> str | None:
    """The Node of the kubelet that a kubeconfig belongs to: by its user's name, else by its certificate. None: it
    belongs to no kubelet.
    """
    from gpuwatch.config.yaml import decode

    try:
        document = decode(content(kubeconfig))
        current = document.get("current-context")
        contexts = [each for each in document["contexts"] if current in (None, "", each["name"])]
        name = str(contexts[0]["context"]["user"])
        user = next((each.get("user") or {} for each in document["users"] if each["name"] == name), {})
        pem = ""
        if data := user.get("client-certificate-data"):
            pem = base64.b64decode(data, validate=True).decode()
        elif path := user.get("client-certificate"):
            pem = content(Path(str(path))).decode()
        # the kubelet's file holds key and certificate in one
        begin, end = pem.find("-----BEGIN CERTIFICATE-----"), pem.find("-----END CERTIFICATE-----")
        der = b"" if begin < 0 else ssl.PEM_cert_to_DER_cert(pem[begin:end] + "-----END CERTIFICATE-----\n")
    except (OSError, UsageError, LookupError, TypeError, AttributeError, ValueError):
        return None
    common_names = (der[match.end() : match.end() + match[1][0]] for match in _COMMON_NAME.finditer(der))
    names = (name, *(each.decode("utf-8", "replace") for each in common_names))
    nodes = (each.removeprefix(NODE_USER) for each in names if each.startswith(NODE_USER))
    return next(filter(None, nodes), None)


def _own_node(
    transport: Transport, names: tuple[str, ...], host: Host, *, is_guess: bool
) -> tuple[SurveyReader, NodeObject]:
    """The Node that certainly is this machine, by one of these names. A guess is extended to Nodes of other names on a
    host of this name, where Nodes may be listed.
    """
    this_machine = View(snapshot=Snapshot(at=0.0, interval=0.0, host=host), agent=AgentStatus(version="", started=0.0))
    candidates, to_list = list(names), list(names) if is_guess else []
    reasons: list[str] = []
    while candidates or to_list:
        if not candidates:
            name = to_list.pop(0)
            try:
                candidates = sorted(SurveyReader(transport, name).names(name) - set(names))
            except Forbidden:
                break
            continue
        reader = SurveyReader(transport, candidates.pop(0))
        try:
            node = reader.node()
        except NotFound as error:
            if not is_guess:
                raise
            reasons.append(error.why)
            continue
        other = identity_mismatch(node, this_machine)
        if other is None:
            return reader, node
        reasons.append(other.message)
    raise GpuwatchError("no Node is known to be this machine", "; ".join(dict.fromkeys(reasons)), "give --node-name")


def _survey(reader: SurveyReader, node: NodeObject, credentials: str, deadline: float) -> ClusterFacts:
    """Everything else, as far as permissions and time allow."""
    unseen: dict[str, str] = {}

    def ask(name: str, request: Callable[[], Answer]) -> Answer | None:
        try:
            if time.monotonic() >= deadline:
                raise Unavailable(ApiCall("list", name), "there is no time left", "give it more with --budget")
            return request()
        except KubeError as error:
            match error:
                case Forbidden(call=call):
                    scope = f"-n {call.namespace}" if call.namespace else "-A"
                    advice = f"`kubectl auth can-i {call.verb} {call.resource} {scope}`"
                    unseen[name] = f"forbidden: {error.why}; {advice}"
                case NotFound(call=call):
                    unseen[name] = f"absent: the cluster knows no {call.resource}"
                case _:
                    unseen[name] = f"failed: {error}"
            return None

    pods = ask("pods", reader.gpu_pods)
    found: dict[str, Any] = {
        "pods": pods,
        "pending": ask("pending", reader.pending),
        "runtime_classes": ask("runtimeclasses", reader.runtime_classes),
        "policy_state": ask("clusterpolicy", reader.policy_state),
    }
    if found["policy_state"] is None:
        unseen.setdefault("clusterpolicy", "absent: there is no ClusterPolicy, or the operator has not looked at it")
    # NVIDIA's device plugin, not AMD's or a network card's
    plugins = (pod for pod in pods or () if PLUGIN in (pod.app or "") and "nvidia" in f"{pod.app} {pod.name}")
    if plugin := next(plugins, None):
        found["plugin_environment"] = plugin.environment
        if plugin.configs and PLUGIN_CONFIG in node.labels:
            namespace, name = plugin.namespace, plugin.configs
            found["plugin_configs"] = ask("configmaps", lambda: reader.config_keys(namespace, name))
    return ClusterFacts(node=node, at=time.time(), way=credentials, unseen=unseen, **found)
