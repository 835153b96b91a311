"""Which GPUs a reset would help, and what forbids it. Pure: from a View and a policy.

A reset ends whatever runs on the GPU and whatever holds it open, and takes MIG instances with it. So everything that is
not known forbids a reset: a GPU whose processes, pods or virtual machines cannot be read is not reset.
"""

from gpuwatch.diagnose.active.run import gpu_use
from gpuwatch.model.finding import Finding, Remedy, Response
from gpuwatch.model.snapshot import GpuState
from gpuwatch.model.view import View
from gpuwatch.remediation.planning.policy import Policy

BEYOND_A_RESET = (Remedy.REBOOT_NODE, Remedy.INSPECT, Remedy.CONTACT_SUPPORT)


def candidates(view: View, policy: Policy) -> dict[str, Finding]:
    """GPU uuid -> the finding a reset would help, of GPUs for which the policy takes the node out of service and no
    other finding asks for more than a reset.
    """
    asked = [f for f in view.judgement.findings if f.gpu and policy.response(f).reaches(Response.TAINT)]
    beyond = {finding.gpu for finding in asked if finding.remedy in BEYOND_A_RESET}
    return {
        finding.gpu: finding
        for finding in asked
        if finding.gpu and finding.remedy is Remedy.RESET_GPU and finding.gpu not in beyond
    }


def refusal(view: View, uuid: str) -> str | None:
    """Why this GPU may not be reset now; None: nothing in the View forbids it."""
    gpu = next((gpu for gpu in view.snapshot.gpus if gpu.identity.uuid == uuid), None)
    status = next((status for status in view.snapshot.statuses if status.identity.uuid == uuid), None)
    if gpu is None or status is None or status.state is not GpuState.FRESH:
        return f"it is {status.state.value if status else 'not there'}: what runs on it is not known"
    if gpu.virtualization_mode != "none":
        mode = gpu.virtualization_mode
        return f"its virtualization mode is {mode}" if mode else "whether this is a virtual machine is not known"
    if gpu.mig_enabled is not False:
        return "a reset would delete its MIG instances" if gpu.mig_enabled else "whether it is in MIG mode is not known"
    return allocation(view, uuid) or gpu_use(view, gpu)


def allocation(view: View, uuid: str) -> str | None:
    """Which pods have the GPU, or why that is not known."""
    kubelet = next((source for source in view.snapshot.sources if source.name == "podresources"), None)
    if kubelet is not None and kubelet.up is False:
        return f"whether a pod has it is not known: {kubelet.reason}"
    held = [use for use in view.attribution.devices if use.gpu == uuid and (use.allocated or use.holders)]
    pods = sorted({f"{h.workload.namespace}/{h.workload.pod}" for use in held for h in use.holders if h.workload.pod})
    return f"allocated to {', '.join(pods) or 'a pod'}" if held else None


def nvlink_peers(view: View, uuid: str) -> tuple[str, ...]:
    """GPUs that are joined to this one by NVLink, which some drivers reset only together: `GPU 1 (GPU-...)`."""
    gpus = {gpu.identity.pci_bus_id.upper(): gpu for gpu in view.snapshot.gpus}
    own = next((gpu for gpu in gpus.values() if gpu.identity.uuid == uuid), None)
    remote = {link.remote_pci.upper() for link in own.nvlinks if link.active and link.remote_pci} if own else set()
    peers = [gpu.identity for address, gpu in gpus.items() if address in remote]
    if not peers and own and any(link.active for link in own.nvlinks):  # NVSwitches connect them
        peers = [g.identity for g in gpus.values() if g is not own and any(link.active for link in g.nvlinks)]
    return tuple(f"GPU {identity.index} ({identity.uuid})" for identity in peers)
