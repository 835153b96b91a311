"""How nodes are kept for one namespace: a taint that only its pods tolerate, and a label that they ask for."""

from gpuwatch.model.recommendation import Apply, Recommendation
from gpuwatch.rightsizing.apply.kubectl import kubectl, label
from gpuwatch.rightsizing.apply.operator import Around

RESERVED = "gpuwatch.io/gpu-reserved"


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
    taint = kubectl("taint", "--overwrite", "nodes", "--", *nodes, f"{RESERVED}={namespace}:NoSchedule")
    command = "\n".join([taint, label(nodes, RESERVED, namespace)])
    return (Apply(what="reserve", note=note, command=command, manifest=fragment),)
