"""How nodes are made to offer what is advised: shared GPUs, MIG instances, or all of them for one namespace.

All three change a node under the pods that are there, so each says what must be true before.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

from gpuwatch.model.mig_profiles import model_of
from gpuwatch.model.recommendation import Apply, Layout, Recommendation
from gpuwatch.model.usage import Fleet
from gpuwatch.rules.kubectl import apply, compact, kubectl, label, pretty, thing

OPERATOR = "gpu-operator"
"""The namespace of NVIDIA's GPU Operator, where the ConfigMaps have to be."""

PLUGIN_CONFIG, MIG_CONFIG = "gpuwatch-device-plugin", "gpuwatch-mig-parted"
RESERVED = "gpuwatch.io/gpu-reserved"

UNSHARED: dict[str, Any] = {"version": "v1"}
"""For nodes without the label. Without it the plugin takes a ConfigMap's only configuration for every node."""

SWITCH = "kubectl patch clusterpolicies.nvidia.com/cluster-policy --type=merge --patch="


def sharing(about: Recommendation, fleet: Fleet) -> tuple[Apply, ...]:
    """The device plugin's configuration, for one node: that of `target.nodes` that comes first."""
    change, nodes = about.change, about.target.nodes[:1]
    key = {"time_slicing": "timeSlicing", "mps": "mps"}.get(change.strategy or "")
    if key is None or change.replicas is None or change.replicas < 2:
        return ()
    resource = change.resource or "nvidia.com/gpu"
    replicated = {"name": resource, "replicas": change.replicas}
    shares = {"renameByDefault": True, "failRequestsGreaterThanOne": True, "resources": [replicated]}
    file = {"version": "v1", "sharing": {key: shares}}
    if key == "mps" and any(gpu.mig_enabled for gpu in fleet.gpus if gpu.node in nodes):
        note = f"{nodes[0]} has GPUs in MIG mode, which MPS of the device plugin cannot share: take another node."
        return (Apply(what="device_plugin", note=note, manifest=file),)
    name = f"{'time-slicing' if key == 'timeSlicing' else 'mps'}-{change.replicas}"
    data = {"default": pretty(UNSHARED), name: pretty(file)}
    steps = [apply(config_map(PLUGIN_CONFIG, data))]
    if nodes:
        steps.append(label(nodes, "nvidia.com/device-plugin.config", name))
    return (Apply(what="device_plugin", note=_sharing_note(name, resource), command="\n".join(steps), manifest=file),)


def _sharing_note(name: str, resource: str) -> str:
    switch = {"spec": {"devicePlugin": {"config": {"name": PLUGIN_CONFIG, "default": "default"}}}}
    return (
        f"Every GPU of the node is shared, and offered as {resource}.shared instead of {resource}: choose a node whose"
        " work may share, and drain it first, as a running pod's GPU would be given to others. GPUs of one model only."
        f" The plugin has to be told of the ConfigMap once: {SWITCH}'{compact(switch)}', or the chart's config.name."
        f" Where it has one already, put the key {name} in there instead."
        + (
            " MPS parts memory and multiprocessors equally; clients of one GPU share its faults."
            if name.startswith("mps")
            else " Time slicing parts neither memory nor faults."
        )
    )


def partitioning(about: Recommendation, fleet: Fleet) -> tuple[Apply, ...]:
    """mig-parted's file for all nodes of the layouts, by hand and through the GPU Operator."""
    layouts = about.change.layouts
    if not layouts:
        return ()
    if any(layout.index is None for layout in layouts):
        return (Apply(what="mig_parted", note="mig-parted knows GPUs by index, and that of some is not known."),)
    by_node = {node: _specs(node, layouts, fleet) for node in sorted({layout.node for layout in layouts})}
    configs = {_name(specs): specs for specs in by_node.values()}
    file = {"version": "v1", "mig-configs": configs}
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, specs in by_node.items():
        nodes[_name(specs)].append(node)
    labels = [label(tuple(names), "nvidia.com/mig.config", name) for name, names in nodes.items()]
    return (_by_operator(file, labels), *(_by_hand(node, _name(specs), specs) for node, specs in by_node.items()))


def _by_operator(file: Mapping[str, Any], labels: list[str]) -> Apply:
    switch = {"spec": {"migManager": {"config": {"name": MIG_CONFIG}}}}
    rest = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}
    whole = {**file, "mig-configs": {**rest, **file["mig-configs"]}}
    made = config_map(MIG_CONFIG, {"config.yaml": pretty(whole)})
    note = (
        "With the GPU Operator. No pod may use a GPU of these nodes meanwhile: drain them first; the driver may want a"
        f" reboot. MIG manager has to be told of the ConfigMap once: {SWITCH}'{compact(switch)}'. Where it has one"
        " already, put the configurations in there instead. The device plugin's MIG strategy has to be `mixed`. Done"
        " when the node's label nvidia.com/mig.config.state is `success`; back with nvidia.com/mig.config=all-disabled."
    )
    return Apply(what="mig_parted", note=note, command="\n".join([apply(made), *labels]), manifest=made)


def _by_hand(node: str, name: str, specs: list[dict[str, Any]]) -> Apply:
    file = {"version": "v1", "mig-configs": {name: specs}}
    command = f"nvidia-mig-parted apply --config-file - --selected-config {name} <<'EOF'\n{pretty(file)}\nEOF"
    note = f"Without the Operator: on {node} itself, as root, while nothing uses its GPUs. Instances go with a reboot."
    return Apply(what="mig_parted", note=note, command=command, manifest=file)


def _specs(node: str, layouts: Iterable[Layout], fleet: Fleet) -> list[dict[str, Any]]:
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


def _name(specs: list[dict[str, Any]]) -> str:
    """The same for the same layout, so that nodes share it, and short enough for a label."""
    return f"gpuwatch-{sha256(json.dumps(specs, sort_keys=True).encode()).hexdigest()[:8]}"


def reserving(about: Recommendation, _: Fleet) -> tuple[Apply, ...]:
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
