"""How nodes are made to offer what is advised: shared GPUs, MIG instances, or all of them for one namespace.

All three change a node under the pods that are there, so each says what must be true before.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from itertools import chain
from typing import Any, NamedTuple

from gpuwatch.model.mig_profiles import model_of
from gpuwatch.model.recommendation import Apply, Layout, Recommendation
from gpuwatch.model.usage import Fleet
from gpuwatch.rules.kubectl import apply, compact, cordon, kubectl, label, pretty, thing

OPERATOR = "gpu-operator"
"""The namespace of NVIDIA's GPU Operator, where the ConfigMaps have to be."""

PLUGIN_CONFIG, MIG_CONFIG = "gpuwatch-device-plugin", "gpuwatch-mig-parted"
RESERVED = "gpuwatch.io/gpu-reserved"

UNSHARED: dict[str, Any] = {"version": "v1"}
"""For nodes without the label. Without it the plugin takes a ConfigMap's only configuration for every node."""

ALONE = "No pod may use a GPU of the node"

SWITCH = "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type=merge --patch="


Specs = list[dict[str, Any]]
"""One configuration of mig-parted: what becomes of which GPUs of a node."""


class Around(NamedTuple):
    """What an advice is not about, and matters: the fleet, and all layouts that are advised at once."""

    fleet: Fleet
    layouts: tuple[Layout, ...] = ()


def sharing(about: Recommendation, around: Around) -> tuple[Apply, ...]:
    """The device plugin's configuration, for one node: that of `target.nodes` that comes first."""
    change, nodes = about.change, about.target.nodes[:1]
    key = {"time_slicing": "timeSlicing", "mps": "mps"}.get(change.strategy or "")
    if key is None or change.replicas is None or change.replicas < 2:
        return ()
    resource = change.resource or "nvidia.com/gpu"
    replicated = {"name": resource, "replicas": change.replicas}
    shares = {"renameByDefault": True, "failRequestsGreaterThanOne": True, "resources": [replicated]}
    file = {"version": "v1", "sharing": {key: shares}}
    if key == "mps" and any(gpu.mig_enabled for gpu in around.fleet.gpus if gpu.node in nodes):
        note = f"{nodes[0]} has GPUs in MIG mode, which MPS of the device plugin cannot share: take another node."
        return (Apply(what="device_plugin", note=note, manifest=file),)
    name = f"{'time-slicing' if key == 'timeSlicing' else 'mps'}-{change.replicas}"
    data = {"default": pretty(UNSHARED), name: pretty(file)}
    steps = [apply(config_map(PLUGIN_CONFIG, data), _manager(data))]
    if nodes:
        steps += [cordon(nodes), label(nodes, "nvidia.com/device-plugin.config", name)]
    return (Apply(what="device_plugin", note=_sharing_note(name, resource), command="\n".join(steps), manifest=file),)


def _sharing_note(name: str, resource: str) -> str:
    switch = {"spec": {"devicePlugin": {"config": {"name": PLUGIN_CONFIG, "default": "default"}}}}
    return (
        f"Every GPU of the node is shared, and offered as {resource}.shared instead of {resource}: choose a node whose"
        " work may share. Its GPUs are given to others even while a pod has one of them alone: uncordon it when those"
        " pods have ended."
        f" The plugin has to be told of the ConfigMap once: {SWITCH}'{compact(switch)}', or the chart's config.name."
        f" Where it has one already, put the key {name} in there instead."
        + (
            " MPS parts memory and multiprocessors equally; clients of one GPU share its faults."
            if name.startswith("mps")
            else " Time slicing parts neither memory nor faults."
        )
    )


def partitioning(about: Recommendation, around: Around) -> tuple[Apply, ...]:
    """mig-parted's file, through the GPU Operator and by hand. A node has one label and the Operator one ConfigMap, so
    both are about all layouts that are advised at once.
    """
    layouts = (*around.layouts, *(each for each in about.change.layouts if each not in around.layouts))
    if not about.change.layouts:
        return ()
    if any(layout.index is None for layout in layouts):
        return (Apply(what="mig_parted", note="mig-parted knows GPUs by index, and that of some is not known."),)
    by_node = {node: _specs(node, layouts, around.fleet) for node in sorted({layout.node for layout in layouts})}
    names: dict[str, list[str]] = defaultdict(list)
    for node in sorted({layout.node for layout in about.change.layouts}):
        names[_name(by_node[node])].append(node)
    configs = {_name(specs): specs for specs in by_node.values()}
    return _by_operator(configs, names), _by_hand({name: configs[name] for name in names}, names)


def _by_operator(configs: Mapping[str, Specs], nodes: Mapping[str, list[str]]) -> Apply:
    """`nodes`: by name of configuration. They take no new pods until somebody uncordons them."""
    switch = {"spec": {"migManager": {"config": {"name": MIG_CONFIG}}}}
    undone = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}
    made = config_map(MIG_CONFIG, {"config.yaml": pretty({"version": "v1", "mig-configs": {**undone, **configs}})})
    note = (
        f"With the GPU Operator, and the device plugin's MIG strategy `mixed`. {ALONE}: drain it before. MIG manager"
        f" has to be told of the ConfigMap once: {SWITCH}'{compact(switch)}'. Where it has one already, put the"
        " configurations in there instead. Done when nvidia.com/mig.config.state of the node is `success`; it may"
        " reboot the node. Then uncordon it. Back with nvidia.com/mig.config=all-disabled."
    )
    steps = [apply(made, _manager(configs)), cordon(sorted(chain.from_iterable(nodes.values())))]
    steps += [label(names, "nvidia.com/mig.config", name) for name, names in nodes.items()]
    return Apply(what="mig_parted", note=note, command="\n".join(steps), manifest=made)


def _by_hand(configs: Mapping[str, Specs], nodes: Mapping[str, list[str]]) -> Apply:
    """The bare file; it is for the nodes themselves, so there is no command for here."""
    which = "; ".join(f"{name} on {', '.join(names)}" for name, names in nodes.items())
    note = (
        f"Without the GPU Operator: `nvidia-mig-parted apply --config-file FILE --selected-config NAME`, as root on the"
        f" node itself. {ALONE}. NAME: {which}. Instances are gone after a reboot."
    )
    return Apply(what="mig_parted", note=note, manifest={"version": "v1", "mig-configs": dict(configs)})


def _specs(node: str, layouts: Iterable[Layout], fleet: Fleet) -> Specs:
    """What mig-parted does to a node: one entry for all GPUs that are cut alike; others are left as they are."""
    here = [layout for layout in layouts if layout.node == node]
    models = {gpu.model for gpu in fleet.gpus if gpu.node == node} | {layout.model for layout in here}
    alike: dict[tuple[str, str], list[int]] = defaultdict(list)
    for layout in here:
        counts = Counter(placement.profile for placement in layout.placements)
        alike[layout.model, json.dumps(counts, sort_keys=True)].append(layout.index or 0)
    return [
        {
            **(_filter(model) if len(models) > 1 else {}),
            "devices": sorted(indexes),
            "mig-enabled": True,
            "mig-devices": json.loads(counts),
        }
        for (model, counts), indexes in sorted(alike.items())
    ]


def _filter(model: str) -> dict[str, Any]:
    """Only GPUs of this model, whatever their indexes are after the next boot."""
    known = model_of(model)
    return {"device-filter": list(known.pci_device_ids)} if known and known.pci_device_ids else {}


def _name(specs: Specs) -> str:
    """The same for the same layout, so that nodes share it, and short enough for a label."""
    return f"gpuwatch-{_digest(specs)}"


def _manager(content: Any) -> str:
    """Another for another content: the API server then refuses to replace what an earlier advice has put there."""
    return f"gpuwatch-{_digest(content)}"


def _digest(content: Any) -> str:
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def reserving(about: Recommendation, _: Around) -> tuple[Apply, ...]:
    """A taint and a label that only the namespace's pods tolerate and ask for."""
    namespace, nodes = about.target.namespace, about.target.nodes
    if not namespace:
        return ()
    toleration = {"key": RESERVED, "operator": "Equal", "value": namespace, "effect": "NoSchedule"}
    fragment = {"spec": {"nodeSelector": {RESERVED: namespace}, "tolerations": [toleration]}}
    back = [kubectl(verb, "nodes", f"--selector={RESERVED}={namespace}", f"{RESERVED}-") for verb in ("taint", "label")]
    note = (
        f"First put the toleration into the templates of {namespace}, and into DaemonSets that do not tolerate"
        " everything (device plugin, exporters); then run the command; then add the nodeSelector. Pods of others stay"
        f" until they end. Back with: {' && '.join(back)}"
    )
    if not nodes:
        return (Apply(what="reserve", note=f"Choose the nodes. {note}", manifest=fragment),)
    things = [thing("Node", node) for node in nodes]
    taint = kubectl("taint", *things, f"{RESERVED}={namespace}:NoSchedule", "--overwrite")
    command = "\n".join([taint, label(nodes, RESERVED, namespace)])
    return (Apply(what="reserve", note=note, command=command, manifest=fragment),)


def config_map(name: str, data: Mapping[str, str]) -> dict[str, Any]:
    """As the Operator reads it."""
    metadata = {"name": name, "namespace": OPERATOR}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": dict(data)}
