"""The NVSwitches of a board and what manages them: fabric manager, subnet manager, registration of the GPUs."""

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.driver_origin import is_containerised
from gpuwatch.diagnose.checks.health.xids import DAY, ago
from gpuwatch.diagnose.checks.per_gpu import gpu_list
from gpuwatch.diagnose.checks.remedies import DRAIN, REBOOT
from gpuwatch.diagnose.host.services import Services
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.text import number

MANAGER = "nv-fabricmanager"
UNIT = "nvidia-fabricmanager.service"
RENAMED = 580
"""From this branch on the package is nvidia-fabricmanager; before it, the name ends with the branch."""
NOT_STARTED, IN_PROGRESS, COMPLETED = 1, 2, 3  # nvmlGpuFabricState_t

PROCESSES_NOT_READ = (
    "not read: this process cannot see the host's processes (in a pod: hostPID), or they were not recorded"
)
OPERATOR = (
    " With the GPU operator it is part of the driver image: delete this node's driver pod; if it comes back so, take "
    "another driver version."
)


def has_switches(services: Services | None) -> bool:
    """Whether this host manages NVSwitches, as far as that can be read."""
    return services is not None and bool(services.switches or services.bridges)


def check_manager(context: CheckContext) -> CheckVerdict:
    """The log has the version started last, the package the one that would start next; a recording may lack either."""
    services = context.facts.services
    if services is None or not has_switches(services):
        return skipped("no NVSwitch" if services and services.switches is not None else "the PCI bus cannot be read")
    view, kernel, runs = context.facts.view, context.facts.kernel, services.runs(MANAGER)
    driver = kernel.driver if kernel else None
    if driver is None and view is not None and view.snapshot.driver is not None:
        driver = view.snapshot.driver.version
    if runs is None:
        return skipped(PROCESSES_NOT_READ)
    package, started = services.fabric_manager_package, services.fabric_manager
    pairs = {
        "switches": _switches(services),
        "driver": driver,
        "last start": started,
        "package": package,
        "last error": services.fabric_manager_error,
        "state": next((p.state for p in services.named(MANAGER) if p.state == "D"), None),
    }
    evidence = {name: text for name, text in pairs.items() if text}
    known = {version for version in ((package, started) if runs else (package or started,)) if version}
    if driver and known and driver not in known:
        states = {gpu.fabric.state for gpu in context.gpus if gpu.fabric.state}
        is_elsewhere = runs and (is_containerised(context) or states == {COMPLETED})  # that version would not work
        elsewhere = passed(f"it runs, and not what the host's package and log name; {_switches(services)}", evidence)
        then = "runs, but must be of the same version" if runs else "does not start so, and CUDA ends with error 802"
        message = f"fabric manager {package or started}, driver {driver}: it {then}"
        skewed = failed(message, evidence, remedy=_same_version(driver), commands=_install(driver))
        return elsewhere if is_elsewhere else skewed
    if not runs:
        return _absent(services, driver, evidence)
    if driver and package and package != driver:
        message = f"fabric manager {package} is installed, the driver is {driver}: it will not start again"
        return warned(message, evidence, remedy=_same_version(driver), commands=_install(driver))
    return passed(f"{started or package or 'version not known'}, {_switches(services)}", evidence)


def check_subnet_manager(context: CheckContext) -> CheckVerdict:
    services = context.facts.services
    if services is None or not services.bridges:
        return skipped("no NVSwitch is managed through ConnectX here")
    if not services.user_mad:
        return failed("ib_umad is not loaded: the NVLink switches cannot be reached")
    if services.runs(MANAGER) and services.runs("nvlsm") is False:
        return failed("nv-fabricmanager runs, but the NVLink subnet manager (nvlsm) does not")
    return passed(f"ib_umad, {services.bridges} ConnectX functions")


def check_registration(context: CheckContext) -> CheckVerdict:
    """Findings of the agent, and GPUs whose registration has not ended. An agent gives them time
    before it reports a finding.
    """
    found = {at: finding for at, finding in context.findings("fabric_state") if at is not None}
    known = {gpu.identity.index: gpu for gpu in context.gpus if gpu.fabric.state}
    problems = {index: finding.message for index, finding in found.items()}
    for index, gpu in known.items():
        if gpu.fabric.state == NOT_STARTED and has_switches(context.facts.services):
            problems.setdefault(index, "its registration with the NVSwitch fabric has not begun")
        elif gpu.fabric.state == IN_PROGRESS:
            problems.setdefault(index, "its registration with the NVSwitch fabric is in progress")
    if not problems:
        count = sum(gpu.fabric.state == COMPLETED for gpu in known.values())
        return passed(f"{count} GPUs registered") if count else skipped("no GPU has a fabric to register with")
    evidence = {f"gpu {index}": text for index, text in sorted(problems.items())}
    registered = {i for i, gpu in known.items() if gpu.fabric.state == COMPLETED and not gpu.fabric.status}
    broken = tuple(
        index for index in sorted(problems) if index not in registered and (index in found or not context.facts.agent)
    )
    gpus = broken or tuple(sorted(problems))
    message = f"{gpu_list(gpus)}: {problems[gpus[0]]}"
    return failed(message, evidence, gpus=gpus) if broken else warned(message, evidence, gpus=gpus)


def check_switch_errors(context: CheckContext) -> CheckVerdict:
    """Findings of the agent; without one, the SXids of the last day in the kernel log."""
    view = context.facts.view
    fatal = [finding for _, finding in context.findings("sxid_fatal")]
    found = fatal or [finding for _, finding in context.findings("sxid_unconfirmed", "sxid_warning")]
    if found:
        message = f"{found[0].message}, {ago(context.facts.at - found[0].latest)}"
        evidence = {f"SXid {finding.evidence.get('sxid', '?')}": finding.message for finding in found}
        return failed(message, evidence) if fatal else warned(message, evidence)
    counts = [] if view is None or context.facts.agent else view.sxids
    late = sorted((c.last, c) for c in counts if c.last is not None and context.facts.at - c.last <= DAY)
    for last, count in reversed(late):
        if count.severity == "fatal":
            message = f"SXid {count.sxid} of NVSwitch {count.switch} (fatal), {ago(context.facts.at - last)}"
            return warned(message, {"source": "the kernel log; whether it was repaired since is not known"})
    return passed("none") if late or has_switches(context.facts.services) else skipped("no NVSwitch")


def _switches(services: Services) -> str:
    if services.switches:
        return f"{services.switches} NVSwitches"
    return f"NVSwitches behind {services.bridges} ConnectX functions"


def _same_version(driver: str) -> str:
    return (
        f"Both must be of exactly the same version. Install fabric manager {driver} and hold its package together with "
        "the driver's, so that no update takes one without the other; or, if the driver was updated and not loaded "
        f"yet, drain the node and reboot it.{OPERATOR}"
    )


def _install(driver: str) -> tuple[str, ...]:
    branch = driver.partition(".")[0]
    is_renamed = (number(branch) or 0) >= RENAMED
    package = "nvidia-fabricmanager" if is_renamed else f"nvidia-fabricmanager-{branch}"
    return (
        "cat /proc/driver/nvidia/version; nv-fabricmanager --version",
        f"apt-get install '{package}={driver}-*'  # RHEL: dnf install 'nvidia-fabric*manager-{driver}'",
        "systemctl restart nvidia-fabricmanager",
    )


def _absent(services: Services, driver: str | None, evidence: dict[str, str]) -> CheckVerdict:
    message = f"{_switches(services)}, but nv-fabricmanager does not run"
    if services.units is not None and services.fabric_manager is None:
        remedy = f"It seems not to be installed: install it in the driver's version, then enable it.{OPERATOR}"
        commands = (*(_install(driver)[1:2] if driver else ()), "systemctl enable --now nvidia-fabricmanager")
        return failed(f"{message}, and no package or log of it is there", evidence, remedy=remedy, commands=commands)
    if services.units is not None and UNIT not in services.units:
        return failed(message, evidence | {"at boot": "the service is not enabled"})
    return failed(message, evidence)


MANAGER_LOG = "journalctl -b -u nvidia-fabricmanager --no-pager | tail -n 50"

NVSWITCH: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "F01", CheckStage.FABRIC, "the fabric manager of the driver's very version runs where there are NVSwitches",
        how="NVSwitches below /sys/bus/pci/devices (class 0680) or ConnectX functions that manage them (SW_MNG); "
        "process nv-fabricmanager; its version in fabricmanager.log and the package database against the "
        "driver's",
        remedy="Without it CUDA fails with error 802 (system not yet initialized). See why it ended, then start it. "
        "With the GPU operator it runs in this node's driver pod: read that pod's log, then delete the pod.",
        commands=("systemctl status nvidia-fabricmanager", MANAGER_LOG, "systemctl restart nvidia-fabricmanager"),
        judge=check_manager, needs=("D01", "F08"), reads=("services",),
    ),
    DiagnosticCheck(
        "F02", CheckStage.FABRIC, "every GPU is registered with a healthy NVLink fabric",
        how="nvmlDeviceGetGpuFabricInfo: state, status and health mask; finding fabric_state",
        remedy="CUDA on such a GPU fails with error 802, or sees no peers. If it lasts minutes: restart the fabric "
        "manager while the GPUs are idle; else drain the node and reset all GPUs together (nvidia-smi -r), or "
        "reboot. In a virtual machine without NVSwitches the host's fabric manager must activate its "
        "partition.",
        commands=("nvidia-smi -q | grep -A 10 -w Fabric", MANAGER_LOG, "systemctl restart nvidia-fabricmanager"),
        judge=check_registration, needs=("N04", "F01"), reads=("view",), each=True,
    ),
    DiagnosticCheck(
        "F08", CheckStage.FABRIC, "what manages NVLink 5 switches is there",
        how="where ConnectX functions manage the NVSwitches (HGX B200 and newer): ib_umad, by "
        "/sys/class/infiniband_mad, and the process nvlsm",
        remedy="The fabric manager's start script starts the NVLink subnet manager (nvlsm), which reaches the "
        "switches through ib_umad. Install what is missing of ib_umad, ibstat (infiniband-diags) and nvlsm, "
        "load the module at boot, then restart the fabric manager.",
        commands=("modprobe ib_umad",
                  "echo ib_umad > /etc/modules-load.d/ib_umad.conf",
                  "command -v ibstat; dpkg -l nvlsm || rpm -q nvlsm",
                  "systemctl restart nvidia-fabricmanager"),
        judge=check_subnet_manager, needs=("D01",), reads=("services",),
    ),
    DiagnosticCheck(
        "F09", CheckStage.FABRIC, "no NVSwitch has reported a fatal error lately",
        how="SXids of the kernel log; findings sxid_fatal and sxid_warning",
        remedy="Jobs over NVLink have been stopped or will fail. Drain the node and reset all GPUs and NVSwitches "
        "together (nvidia-smi -r without -i), or reboot. If the same switch or link reports it again, inspect "
        "the baseboard.",
        commands=("dmesg -T | grep -i sxid", DRAIN, "nvidia-smi --gpu-reset", REBOOT),
        judge=check_switch_errors, needs=("N02",), reads=("view",),
    ),
)  # fmt: skip
