"""Asks the API server about this node, with whatever right this process has, and says what it could not see.

Only requests that read. A Node that may be another machine's is not looked at further: names are set by people.
"""

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from gpuwatch.diagnose.host.kubelet_identity import kubelet_kubeconfig, node_of
from gpuwatch.diagnose.kube.client import SurveyReader
from gpuwatch.diagnose.model import ClusterFacts, NodePod
from gpuwatch.kube.errors import ApiCall, Forbidden, KubeError, NotFound, Unavailable
from gpuwatch.kube.objects import NodeObject
from gpuwatch.kube.transport import SERVICE_ACCOUNT, NoCluster, Transport, credentials_source
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Host, Snapshot
from gpuwatch.model.view import AgentStatus, View
from gpuwatch.remediation.planning.evidence import identity_mismatch

__all__ = ["ClusterFacts", "read_cluster"]

PLUGIN = "device-plugin"
PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
"""The label that chooses one of several configurations of the plugin."""

Found = TypeVar("Found")


class Credentials(NamedTuple):
    """`kubeconfig` empty: as kubectl would choose; `node`: the Node whose kubelet's they are; `words`: for people."""

    kubeconfig: str
    words: str
    node: str | None = None


def read_cluster(
    node_name: str,
    seconds: float,
    *,
    host: Host,
    kubeconfig: str = "",
    environment: Mapping[str, str] = os.environ,
    root: Path = Path("/"),
    names: tuple[str, ...] | None = None,
) -> ClusterFacts:
    """What the API server tells of the Node of the machine `host`, asked for no longer than about `seconds`.

    `node_name` empty: NODE_NAME, else the kubelet's own name, else a Node of this host's name (`names`).

    Raises:
        NoCluster: no API server is known.
        GpuwatchError: it does not answer, has no Node for this machine, or the Node of that name is another machine's.
    """
    deadline = time.monotonic() + seconds
    credentials = _credentials(kubeconfig, environment, root)
    transport = Transport(credentials.kubeconfig, read_seconds=max(0.1, seconds / 2))
    try:
        told = node_name or environment.get("NODE_NAME", "") or credentials.node
        reader, node = _own_node(transport, (told,) if told else names or _host_names(), host, is_guess=not told)
        return _survey(reader, node, credentials.words, deadline)
    finally:
        transport.close()


def _credentials(kubeconfig: str, environment: Mapping[str, str], root: Path) -> Credentials:
    """As kubectl finds them; else the kubelet's, which may read its own Node and pods."""
    try:
        found = credentials_source(kubeconfig, environment)
    except NoCluster:
        own = None if kubeconfig else kubelet_kubeconfig(root)
        if own is None:
            raise
        return Credentials(str(own), f"the kubelet's own kubeconfig, {own}", node_of(own))
    if found == str(SERVICE_ACCOUNT):
        return Credentials("", "the pod's service account")
    return Credentials(found, found, node_of(Path(found)))


def _host_names() -> tuple[str, ...]:
    name = socket.gethostname().lower()
    return tuple(dict.fromkeys((name, name.partition(".")[0])))


def _own_node(
    transport: Transport, names: tuple[str, ...], host: Host, *, is_guess: bool
) -> tuple[SurveyReader, NodeObject]:
    """The Node that is this machine beyond doubt."""
    reasons: list[str] = []
    for name in _candidates(transport, names) if is_guess else iter(names):
        reader = SurveyReader(transport, name)
        try:
            node = reader.node()
        except NotFound as error:
            if not is_guess:
                raise
            reasons.append(error.why)
            continue
        other = identity_mismatch(node, _view_of(host))
        if other is None:
            return reader, node
        reasons.append(other.message)
    raise GpuwatchError("no Node is known to be this machine", "; ".join(dict.fromkeys(reasons)), "give --node-name")


def _candidates(transport: Transport, names: tuple[str, ...]) -> Iterator[str]:
    """The names themselves; then Nodes that are called otherwise, where Nodes may be listed."""
    yield from names
    for name in names:
        try:
            yield from sorted(SurveyReader(transport, name).names(name) - set(names))
        except Forbidden:
            return


def _view_of(host: Host) -> View:
    """A View of nothing but the machine."""
    return View(snapshot=Snapshot(at=0.0, interval=0.0, host=host), agent=AgentStatus(version="", started=0.0))


def _survey(reader: SurveyReader, node: NodeObject, words: str, deadline: float) -> ClusterFacts:
    """Everything else, as far as it may be seen and there is time."""
    unseen: dict[str, str] = {}

    def seen(name: str, ask: Callable[[], Found]) -> Found | None:
        try:
            if time.monotonic() >= deadline:
                raise Unavailable(ApiCall("list", name), "there is no time left", "give it more with --budget")
            return ask()
        except KubeError as error:
            unseen[name] = _reason(error)
            return None

    pods = seen("pods", reader.gpu_pods)
    found: dict[str, Any] = {
        "pods": pods,
        "pending": seen("pending", reader.pending),
        "runtime_classes": seen("runtimeclasses", reader.runtime_classes),
        "policy_state": seen("clusterpolicy", reader.policy_state),
    }
    if found["policy_state"] is None:
        unseen.setdefault("clusterpolicy", "absent: there is no ClusterPolicy, or the operator has not looked at it")
    plugin = next((pod for pod in pods or () if _is_plugin(pod)), None)
    if plugin is not None:
        found["plugin_environment"] = plugin.environment
        if plugin.configs and PLUGIN_CONFIG in node.labels:
            namespace, name = plugin.namespace, plugin.configs
            found["plugin_configs"] = seen("configmaps", lambda: reader.config_keys(namespace, name))
    return ClusterFacts(node=node, at=time.time(), way=words, unseen=unseen, **found)


def _is_plugin(pod: NodePod) -> bool:
    """NVIDIA's, not AMD's or a network card's."""
    return PLUGIN in (pod.app or "") and "nvidia" in f"{pod.app} {pod.name}"


def _reason(error: KubeError) -> str:
    call = error.call
    match error:
        case Forbidden():
            scope = f"-n {call.namespace}" if call.namespace else "-A"
            return f"forbidden: {error.why}; `kubectl auth can-i {call.verb} {call.resource} {scope}`"
        case NotFound():
            return f"absent: the cluster knows no {call.resource}"
    return f"failed: {error}"
