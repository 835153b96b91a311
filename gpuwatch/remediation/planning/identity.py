"""Whether a Node is the machine the View is of: the question before every write."""

from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.view import View
from gpuwatch.remediation.model.plan import Blocked, Reason


def mistaken(node: NodeObject, view: View) -> Blocked | None:
    """Why nothing may be written to this Node; None when it is this machine beyond doubt.

    Boot id, machine id and system uuid must agree wherever both sides know them, and one must be known to both: names
    are set by people, and two machines made from one image share theirs.
    """
    here, there = view.snapshot.host, node.host
    pairs = {
        "boot id": (here.boot_id, there.boot_id),
        "machine id": (here.machine_id, there.machine_id),
        "system uuid": (here.system_uuid, there.system_uuid),
    }
    known = {name: (a, b) for name, (a, b) in pairs.items() if a and b}
    for name, (a, b) in known.items():
        if a.strip().lower() != b.strip().lower():
            return _blocked(f"node {node.name} has the {name} {b}, this machine {a}; check NODE_NAME")
    if not known:
        return _blocked(f"neither boot id nor machine id can be compared with node {node.name}; mount the host's /proc")
    told = view.snapshot.node
    if told and told.split(".")[0].lower() != node.name.split(".")[0].lower():
        return _blocked(f"the agent runs on {told}, not on node {node.name}; give both the same NODE_NAME")
    return None


def _blocked(words: str) -> Blocked:
    return Blocked(reason=Reason.IDENTITY, words=words)
