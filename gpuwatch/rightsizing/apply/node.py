"""How nodes are configured: the device plugin's GPU sharing, and mig-parted's file of MIG instances.

Both configure a whole node, and change what it offers while pods run there. Checked with mig-parted v1
(`api/spec/v1`): GPUs are named by index, others of the node are left as they are.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from gpuwatch.rightsizing.apply.kubectl import (
    ApplyContext,
    Specs,
    add,
    config_map,
    cordon,
    digest,
    label,
    operator_patch,
    pretty,
)
from gpuwatch.rightsizing.model.mig_profiles import model_of
from gpuwatch.rightsizing.model.recommendation import Apply, Layout, Recommendation
from gpuwatch.rightsizing.model.usage import FleetFacts

SHARING_CONFIG = "gpuwatch-device-plugin"
SHARING_LABEL = "nvidia.com/device-plugin.config"

WORDS = {
    "mps": "MPS parts memory and multiprocessors equally; a fault of one client ends the others. The plugin does not"
    " start with it where its MIG strategy is `mixed`.",
    "time_slicing": "Time slicing isolates neither memory nor faults: when one takes all memory, the others get none.",
}

UNSHARED: dict[str, Any] = {"version": "v1"}
"""For nodes without the label: without this entry, the plugin takes a ConfigMap's only configuration for them."""


def sharing(about: Recommendation, around: ApplyContext) -> tuple[Apply, ...]:
    """The device plugin's configuration, for one node: the first of `target.nodes`."""
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
    steps = [add(config_map(SHARING_CONFIG, data))]
    steps += [cordon(nodes)] if nodes else []
    labelling = label(nodes, SHARING_LABEL, name) if nodes else f"the label {SHARING_LABEL}={name}"
    switch = operator_patch({"devicePlugin": {"config": {"name": SHARING_CONFIG, "default": "default"}}})
    note = (
        f"Every GPU of the node is shared, and offered as {resource}.shared instead of {resource}: choose a node whose"
        " work may share. It is for a node that no pod uses a GPU of: the plugin would give a GPU to others that a pod"
        " has alone, and MPS lets no process of that pod begin any more. When the pods of the cordoned node have ended:"
        f" {labelling}, then uncordon it."
        f" The plugin has to be given the ConfigMap once: {switch}, or the chart's config.name."
        f" Where it has one already, put the key {name} in there instead."
        f" {WORDS['mps' if key == 'mps' else 'time_slicing']}"
    )
    return (Apply(what="device_plugin", note=note, command="\n".join(steps), manifest=file),)


MIG_CONFIG = "gpuwatch-mig-parted"
MIG_LABEL = "nvidia.com/mig.config"
ALONE = "No pod may use a GPU of the node"
IN_USE = "Others of its GPUs are in use, so the command does not label it. When their pods have ended: {}. "


def partitioning(about: Recommendation, around: ApplyContext) -> tuple[Apply, ...]:
    """mig-parted's configuration, through the GPU Operator and by hand."""
    nodes = sorted({layout.node for layout in about.change.layouts})
    if unknown := [node for node in nodes if node not in around.specs]:
        note = f"mig-parted knows GPUs by index, which is not known on {', '.join(unknown)}."
        return (Apply(what="mig_parted", note=note),)
    names: dict[str, list[str]] = defaultdict(list)
    for node in nodes:
        names[_name(around.specs[node])].append(node)
    if not nodes:
        return ()
    own = {name: around.specs[here[0]] for name, here in names.items()}
    which = "; ".join(f"{name} on {', '.join(here)}" for name, here in names.items())
    note = (
        f"Without the GPU Operator: `nvidia-mig-parted apply --config-file FILE --selected-config NAME`, as root on the"
        f" node itself. {ALONE}. NAME: {which}. Instances are gone after a reboot."
    )
    # The bare file is used on the nodes themselves, so there is no command to run here.
    bare = Apply(what="mig_parted", note=note, manifest={"version": "v1", "mig-configs": own})
    return _by_operator(about.id, names, around), bare


def specs_of(layouts: Iterable[Layout], fleet: FleetFacts) -> dict[str, Specs]:
    """What mig-parted does to each node: an entry for all of its GPUs that are cut alike; others are left as they are.

    A node with a GPU of which the index is not known is left out.
    """
    by_node: dict[str, list[Layout]] = defaultdict(list)
    for layout in layouts:
        by_node[layout.node].append(layout)
    models = {(gpu.node, gpu.model) for gpu in fleet.gpus} | {
        (node, each.model) for node, here in by_node.items() for each in here
    }
    kinds = Counter(node for node, _ in models)
    found: dict[str, Specs] = {}
    for node, here in sorted(by_node.items()):
        if any(layout.index is None for layout in here):
            continue
        alike: dict[tuple[str, str], set[int]] = defaultdict(set)
        for layout in here:
            counts = Counter(placement.profile for placement in layout.placements)
            alike[layout.model, json.dumps(counts, sort_keys=True)].add(layout.index or 0)
        specs: Specs = []
        for (model, devices), indexes in sorted(alike.items()):
            cut = {"devices": sorted(indexes), "mig-enabled": devices != "{}", "mig-devices": json.loads(devices)}
            known = model_of(model) if kinds[node] > 1 else None
            if known and known.pci_device_ids:  # only GPUs of this model, whatever their indexes after the next boot
                cut = {"device-filter": list(known.pci_device_ids), **cut}
            specs.append(cut)
        found[node] = specs
    return found


def _by_operator(about: str, nodes: Mapping[str, list[str]], around: ApplyContext) -> Apply:
    """`nodes`: by name of configuration. They take no new pods until a person uncordons them. MIG manager begins when
    the label is set, stops what reports the node's GPUs, and may reboot: so only nodes without a held GPU get it.
    """
    steps = [cordon(sorted(chain.from_iterable(nodes.values())))]
    later: list[str] = []
    for name, names in nodes.items():
        steps += [label(free, MIG_LABEL, name)] if (free := [each for each in names if each not in around.used]) else []
        later += [label(used, MIG_LABEL, name)] if (used := [each for each in names if each in around.used]) else []
    others = IN_USE.format(" && ".join(later)) if later else ""
    words = (
        f"{ALONE}: drain it before. {others}Done when {MIG_LABEL}.state of the node is `success`; it may reboot the"
        f" node. Then uncordon it. Back with {MIG_LABEL}=all-disabled."
    )
    if about != around.bearer:
        note = f"With the GPU Operator: the ConfigMap comes with {around.bearer}, apply that first. {words}"
        return Apply(what="mig_parted", note=note, command="\n".join(steps))
    switch = operator_patch({"migManager": {"config": {"name": MIG_CONFIG}}})
    configs: dict[str, Specs] = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}
    configs |= {_name(specs): specs for specs in around.specs.values()}
    made = config_map(MIG_CONFIG, {"config.yaml": pretty({"version": "v1", "mig-configs": configs})})
    note = (
        "With the GPU Operator, and the device plugin's MIG strategy `mixed`. MIG manager has to be given the"
        f" ConfigMap once: {switch}. Where it has one already, put the configurations in there instead. {words}"
    )
    return Apply(what="mig_parted", note=note, command="\n".join([add(made), *steps]), manifest=made)


def _name(specs: Specs) -> str:
    """The same for the same layout, so that nodes share it, and short enough for a label."""
    return f"gpuwatch-{digest(specs)}"
