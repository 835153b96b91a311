"""Judges how GPUs are cut: MIG mode, instances, and whether all agree with what the cluster was told."""

import re
from collections import Counter
from collections.abc import Iterator

from gpuwatch.diagnose.check import CheckContext, CheckVerdict, failed, gpu_list, passed, skipped, warned
from gpuwatch.model.snapshot import Gpu

CONFIG, STATE = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
STRATEGY, PRODUCT = "nvidia.com/mig.strategy", "nvidia.com/gpu.product"
SINGLE, NONE = "single", "none"
AT_WORK = ("pending", "rebooting")
_OF_ONE_PROFILE = re.compile(r"all-((?:\d+c\.)?\d+g\.\d+gb(?:[.+][a-z.+-]+)?)", re.ASCII)
_GPU_INSTANCE = re.compile(r"gpu(\d+)/mig/gi(\d+)/access", re.ASCII)


def labels(context: CheckContext) -> dict[str, str]:
    """The node's; empty without a cluster."""
    return context.facts.cluster.node.labels if context.facts.cluster else {}


def pending(context: CheckContext) -> CheckVerdict:
    """M01."""
    capable = [gpu for gpu in context.gpus if gpu.mig_enabled is not None]
    words = {at: finding.message for at, finding in context.findings("mig_pending") if at is not None}
    for gpu in capable:
        if gpu.mig_pending is not None and gpu.mig_pending != gpu.mig_enabled:
            wanted = "on" if gpu.mig_pending else "off"
            words.setdefault(gpu.identity.index, f"MIG mode is to be {wanted} after the next reset")
    if not words:
        on = sum(bool(gpu.mig_enabled) for gpu in capable)
        return passed(f"MIG is on at {on} of {len(capable)} GPUs") if capable else skipped("no GPU can do MIG")
    gpus = tuple(sorted(words))
    evidence = {f"gpu {index}": said for index, said in sorted(words.items())}
    return failed(f"{gpu_list(gpus)}: {words[gpus[0]]}", evidence, gpus=gpus)


def configuration(context: CheckContext) -> CheckVerdict:
    """M02."""
    state, config = labels(context).get(STATE), labels(context).get(CONFIG, "none")
    if state is None:
        return skipped("no mig-manager: the node has no label mig.config.state")
    message = f"mig.config.state is {state} (mig.config: {config})"
    if state == "failed":
        return failed(message)
    return (
        warned(message, remedy="Wait; if this lasts for more than 10 minutes, read mig-manager's log.")
        if (state in AT_WORK)
        else passed(message)
    )


def instances(context: CheckContext) -> CheckVerdict:
    """M03."""
    capable = [gpu for gpu in context.gpus if gpu.mig_enabled is not None]
    if not capable:
        return skipped("no GPU can do MIG")
    config = labels(context).get(CONFIG, "") if labels(context).get(STATE, "success") == "success" else ""
    broken = {gpu.identity.index: said for gpu in capable if (said := _broken(context, gpu) or _other(gpu, config))}
    empty = {gpu.identity.index: "MIG is on, but nothing is cut" for gpu in capable if gpu.mig_enabled and not gpu.mig}
    words = broken or ({} if config == "all-enabled" else empty)
    if words:
        gpus = tuple(sorted(words))
        evidence = {f"gpu {index}": said for index, said in sorted(words.items())}
        say = failed if broken else warned
        return say(f"{gpu_list(gpus)}: {words[gpus[0]]}", evidence, gpus=gpus)
    cut = [gpu for gpu in capable if gpu.mig]
    whole = ", ".join(f"gpu {gpu.identity.index}: {_profiles(gpu)}" for gpu in cut)
    return passed(whole) if cut else skipped("MIG is off")


def strategy(context: CheckContext) -> CheckVerdict:
    """M04, as the device plugin and GPU feature discovery demand it."""
    cluster, cut = context.facts.cluster, [gpu for gpu in context.gpus if gpu.mig_enabled]
    if not cut:
        return skipped("MIG is off")
    wanted = labels(context).get(STRATEGY) or ((cluster and cluster.plugin_environment) or {}).get("MIG_STRATEGY")
    if wanted is None:
        return skipped("not seen: the MIG strategy, for want of a label and of the device plugin's pod")
    wrong = _wrong_single(context, cut) if wanted == SINGLE else ""
    if not wrong and labels(context).get(PRODUCT, "").endswith("MIG-INVALID"):
        wrong = f"the label gpu.product ends in MIG-INVALID (strategy {wanted})"
    gpus = tuple(gpu.identity.index for gpu in cut)
    if wrong:
        return failed(wrong, gpus=gpus)
    if wanted == NONE:
        return warned(f"strategy none, but MIG is on at {gpu_list(gpus)}: handed out whole, of no use")
    return passed(f"{wanted}: {', '.join(_names(cut)) or 'nothing is cut'}")


def _wrong_single(context: CheckContext, cut: list[Gpu]) -> str:
    whole = tuple(gpu.identity.index for gpu in context.gpus if not gpu.mig_enabled)
    if len(_names(cut)) > 1:
        return f"strategy single, but the instances are {' and '.join(_names(cut))}"
    return f"strategy single, but MIG is off at {gpu_list(whole)}" if whole else ""


def _names(cut: list[Gpu]) -> list[str]:
    return sorted({instance.profile or "?" for gpu in cut for instance in gpu.mig})


def _broken(context: CheckContext, gpu: Gpu) -> str:
    """GPU instances that the driver shows and that have no compute instance; NVML has no device for them."""
    used = {instance.gi for instance in gpu.mig}
    idle = sorted(gi for gi in _gpu_instances(context, gpu) if gi not in used)
    return f"GPU instance {', '.join(map(str, idle))} has no compute instance" if idle and gpu.mig_enabled else ""


def _gpu_instances(context: CheckContext, gpu: Gpu) -> Iterator[int]:
    paths = context.facts.nodes.capabilities if context.facts.nodes else {}
    for path in paths:
        match = _GPU_INSTANCE.fullmatch(path)
        if match and int(match[1]) == gpu.identity.minor:
            folder = path.removesuffix("access")
            if not any(other.startswith(f"{folder}ci") for other in paths):
                yield int(match[2])


def _other(gpu: Gpu, config: str) -> str:
    """What is not as a configuration of NVIDIA's own asks for; names that a site has given say nothing."""
    if config == "all-disabled":
        return "MIG is on, but the label asks for all-disabled" if gpu.mig_enabled else ""
    asked = _OF_ONE_PROFILE.fullmatch(config)
    if asked is None:
        return ""
    if gpu.mig and {(instance.profile or "").replace("+", ".") for instance in gpu.mig} == {asked[1]}:
        return ""
    return f"{_profiles(gpu) or 'nothing is cut'}, but the label asks for {config}"


def _profiles(gpu: Gpu) -> str:
    counts = Counter(instance.profile or "?" for instance in gpu.mig)
    return ", ".join(f"{count}x {profile}" for profile, count in sorted(counts.items()))
