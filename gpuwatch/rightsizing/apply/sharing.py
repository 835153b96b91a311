"""How GPUs come to be shared: the device plugin's configuration of a node, by time slicing or MPS.

The configuration is of a whole node, and changes what the node offers under the pods that are there.
"""

from typing import Any

from gpuwatch.model.recommendation import Apply, Recommendation
from gpuwatch.rightsizing.apply.kubectl import cordon, label, pretty
from gpuwatch.rightsizing.apply.operator import Around, add, config_map, told

CONFIG = "gpuwatch-device-plugin"
LABEL = "nvidia.com/device-plugin.config"

WORDS = {
    "mps": "MPS parts memory and multiprocessors equally; a fault of one client ends the others. The plugin does not"
    " start with it where its MIG strategy is `mixed`.",
    "time_slicing": "Time slicing isolates neither memory nor faults: when one takes all memory, the others get none.",
}

UNSHARED: dict[str, Any] = {"version": "v1"}
"""For nodes without the label. Without it the plugin takes a ConfigMap's only configuration for every node."""


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
    is_cut = not around.cut.isdisjoint(nodes) or "/mig-" in resource
    if key == "mps" and is_cut:
        note = "The device plugin's MPS shares no MIG instances, and the node has GPUs in MIG mode: take another node."
        return (Apply(what="device_plugin", note=note, manifest=file),)
    name = f"{'time-slicing' if key == 'timeSlicing' else 'mps'}-{change.replicas}"
    data = {"default": pretty(UNSHARED), name: pretty(file)}
    steps = [add(config_map(CONFIG, data))]
    steps += [cordon(nodes)] if nodes else []
    note = _sharing_note(name, resource, label(nodes, LABEL, name) if nodes else f"the label {LABEL}={name}")
    return (Apply(what="device_plugin", note=note, command="\n".join(steps), manifest=file),)


def _sharing_note(name: str, resource: str, labelling: str) -> str:
    switch = told({"devicePlugin": {"config": {"name": CONFIG, "default": "default"}}})
    return (
        f"Every GPU of the node is shared, and offered as {resource}.shared instead of {resource}: choose a node whose"
        " work may share. It is for a node that no pod uses a GPU of: the plugin would give a GPU to others that a pod"
        " has alone, and MPS lets no process of that pod begin any more. When the pods of the cordoned node have ended:"
        f" {labelling}, then uncordon it."
        f" The plugin has to be told of the ConfigMap once: {switch}, or the chart's config.name."
        f" Where it has one already, put the key {name} in there instead."
        f" {WORDS['mps' if name.startswith('mps') else 'time_slicing']}"
    )
