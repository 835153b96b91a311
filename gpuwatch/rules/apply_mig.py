"""How GPUs are cut: mig-parted's file, for the GPU Operator's MIG manager and for those who have none.

Checked with mig-parted v1 (`api/spec/v1`): GPUs are named by index, others of the node are left as they are.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any

from gpuwatch.model.mig_profiles import model_of
from gpuwatch.model.recommendation import Apply, Layout, Recommendation
from gpuwatch.model.usage import Fleet
from gpuwatch.rules.apply_operator import Around, add, config_map, digest, told
from gpuwatch.rules.kubectl import cordon, label, pretty

CONFIG = "gpuwatch-mig-parted"
LABEL = "nvidia.com/mig.config"
ALONE = "No pod may use a GPU of the node"

Specs = list[dict[str, Any]]
"""One configuration of mig-parted: what becomes of which GPUs of a node."""


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
    switch = told({"migManager": {"config": {"name": CONFIG}}})
    undone = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}
    made = config_map(CONFIG, {"config.yaml": pretty({"version": "v1", "mig-configs": {**undone, **configs}})})
    note = (
        f"With the GPU Operator, and the device plugin's MIG strategy `mixed`. {ALONE}: drain it before. MIG manager"
        f" has to be told of the ConfigMap once: {switch}. Where it has one already, put the"
        f" configurations in there instead. Done when {LABEL}.state of the node is `success`; it may"
        f" reboot the node. Then uncordon it. Back with {LABEL}=all-disabled."
    )
    steps = [add(made), cordon(sorted(chain.from_iterable(nodes.values())))]
    steps += [label(names, LABEL, name) for name, names in nodes.items()]
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
            "mig-enabled": counts != "{}",
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
    return f"gpuwatch-{digest(specs)}"
