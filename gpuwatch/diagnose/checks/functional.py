"""Real work on the GPUs: CUDA kernels, copies over PCIe and NVLink."""

from collections.abc import Callable, Iterable
from functools import partial

from gpuwatch.diagnose.active.results import Active, DeviceRun, Test
from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, passed, skipped, warned
from gpuwatch.diagnose.checks.remedies import OUT_OF_SERVICE, remedy_for
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.snapshot import Pcie

LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
"""Bytes per second that one lane of a generation carries one way, after encoding (PCI Express Base 6.0)."""


def pcie_bandwidth(link: Pcie | None) -> float | None:
    """Bytes per second each way, in the highest state that GPU and slot have together: an idle link trains down."""
    if link is None:
        return None
    generation, width = _highest(link)
    lane = LANE.get(generation) if generation else None
    return lane * width if lane and width else None


def _highest(link: Pcie) -> tuple[int | None, int | None]:
    return link.generation_max or link.generation, link.width_max or link.width


SLOW, BROKEN = 0.6, 0.25
"""Shares of what the link can carry, of which copies of pinned memory reach about 0.8: the check warns below the first;
below the second a GPU waits for its data, and it fails.
"""


def _runs(context: CheckContext, test: Test) -> list[DeviceRun]:
    runs = (context.facts.active or Active()).runs
    return [r for r in runs if r.test == test and all(i is None or context.selects(i) for i in (r.index, r.peer))]


def _name(run: DeviceRun) -> str:
    if run.peer is not None:
        return f"GPUs {run.index} and {run.peer}"
    return f"GPU {run.index}" + (f" {run.device}" if run.device.startswith("MIG-") else "")


def _key(run: DeviceRun) -> str:
    return _name(run).replace("GPU", "gpu", 1)


def _failed_gpus(runs: Iterable[DeviceRun]) -> tuple[int, ...]:
    return tuple(sorted({i for run in runs for i in (run.index, run.peer) if i is not None}))


def _judged(
    context: CheckContext, test: Test, measured: Callable[[CheckContext, list[DeviceRun]], CheckVerdict]
) -> CheckVerdict:
    """A failure if any device failed; else what was measured on those that were tried."""
    runs = _runs(context, test)
    bad, refused = [r for r in runs if r.error], [r for r in runs if r.refused]
    good = [r for r in runs if not r.error and not r.refused]
    if bad:
        remedy = remedy_for(bad[0])
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        return failed(
            f"{_name(bad[0])}: {bad[0].error}{more}",
            {_key(r): r.error or "" for r in bad},
            gpus=_failed_gpus(bad),
            remedy=remedy.text if remedy else None,
            commands=remedy.commands if remedy else None,
        )
    if not good:
        reasons = dict.fromkeys(f"{_name(r)}: {r.refused}" for r in refused)
        return skipped("not tried: " + ("; ".join(reasons) or "no device"))
    verdict = measured(context, good)
    if not refused:
        return verdict
    evidence = verdict.evidence | {_key(r): f"not tried: {r.refused}" for r in refused}
    return verdict._replace(message=f"{verdict.message}; {len(refused)} not tried", evidence=evidence)


def _count(runs: list[DeviceRun]) -> str:
    instances = sum(run.device.startswith("MIG-") for run in runs)
    counts = ((len(runs) - instances, "GPU"), (instances, "MIG instance"))
    return ", ".join(f"{n} {noun}{'s' if n > 1 else ''}" for n, noun in counts if n)


def _copy_speed(context: CheckContext, runs: list[DeviceRun]) -> CheckVerdict:
    links: dict[int | None, Pcie] = {gpu.identity.index: gpu.pcie for gpu in context.gpus}
    shares: dict[DeviceRun, float] = {}  # of what the link can carry, in the slower direction, where that is known
    evidence: dict[str, str] = {}
    slowest: list[float] = []
    for run in runs:
        link, most = links.get(run.index), pcie_bandwidth(links.get(run.index))
        speeds = [speed for speed in (run.host_to_device, run.device_to_host) if speed]
        slowest += speeds
        down, up = run.host_to_device or 0.0, run.device_to_host or 0.0
        text = f"{down / 1e9:.1f} GB/s to the GPU, {up / 1e9:.1f} GB/s back"
        if link and most:
            generation, width = _highest(link)
            text += f", of {most / 1e9:.1f} (PCIe {generation}.0 x{width})"
        evidence[_key(run)] = text
        if speeds and most:
            shares[run] = min(speeds) / most
    for limit, answer in ((BROKEN, failed), (SLOW, warned)):
        # MIG instances share the link and may have one copy engine each: only a speed far below it is a sign.
        is_shared = limit == SLOW
        below = [r for r, s in shares.items() if s < limit and not (is_shared and r.device.startswith("MIG-"))]
        if below:
            worst = min(below, key=lambda run: shares[run])
            return answer(f"{_name(worst)}: {evidence[_key(worst)]}", evidence, gpus=_failed_gpus(below))
    return passed(f"{_count(runs)}, at least {min(slowest, default=0.0) / 1e9:.1f} GB/s", evidence)


def check_reaches(context: CheckContext) -> CheckVerdict:
    if not _runs(context, "peer"):
        linked = sum(any(link.active for link in gpu.nvlinks) for gpu in context.gpus)
        return skipped("no two GPUs are joined by NVLink" if linked < 2 else "not tried: no pair of GPUs was left")
    return _judged(context, "peer", _peer_speed)


def _peer_speed(context: CheckContext, runs: list[DeviceRun]) -> CheckVerdict:
    """Warns where copies are no faster than over PCIe: then they do not use NVLink."""
    links: dict[int | None, Pcie] = {gpu.identity.index: gpu.pcie for gpu in context.gpus}
    evidence = {_key(run): f"{(run.peer_bandwidth or 0.0) / 1e9:.0f} GB/s" for run in runs}
    by_pcie = {run: pcie_bandwidth(links.get(run.index)) for run in runs}
    slow = [run for run, most in by_pcie.items() if most is not None and (run.peer_bandwidth or 0.0) <= most]
    if slow:
        worst = min(slow, key=lambda run: run.peer_bandwidth or 0.0)
        message = f"{_name(worst)}: {evidence[_key(worst)]}, no more than PCIe can do"
        return warned(message, evidence, gpus=_failed_gpus(slow))
    slowest = min(run.peer_bandwidth or 0.0 for run in runs)
    return passed(f"{len(runs)} pair{'s' if len(runs) > 1 else ''}, at least {slowest / 1e9:.0f} GB/s", evidence)


FUNCTIONAL: tuple[DiagnosticCheck, ...] = (
    DiagnosticCheck(
        "X01", CheckStage.FUNCTIONAL, "CUDA starts and computes rightly on every GPU and MIG instance",
        how="CUDA driver API: cuInit, a context, a vectorAdd kernel over a million numbers, compared with the CPU",
        remedy="The GPU computes wrongly or is not the one that NVML names: its results cannot be trusted. Take it "
        "out of service at once. Run DCGM's long diagnosis; if that confirms it, replace the GPU.",
        commands=(OUT_OF_SERVICE, "dcgmi diag -r 3 -i {gpu}", "nvidia-smi -i {gpu} -q -d ECC,ROW_REMAPPER"),
        judge=partial(_judged, test="vector_add", measured=lambda context, runs: passed(f"right on {_count(runs)}")),
        needs=("D02", "N02", "N04", "V01", "F01", "F02"), reads=("active",), active=True, each=True,
    ),
    DiagnosticCheck(
        "X02", CheckStage.FUNCTIONAL, "data gets to the GPUs and back at the speed of their PCIe link",
        how="copies of up to 64 MiB of pinned memory, best of 5 each way, against what PCIe generation and width "
        "allow: below 60 % warns, below 25 % fails",
        remedy="Look at the link while the GPU is busy; an idle one trains down. Too narrow or slow: reseat the card, "
        "check riser and BIOS (bifurcation, link speed). Full width: check that the IOMMU passes through "
        "(iommu=pt), the CPU's power saving, and whether the check ran on the GPU's NUMA node.",
        commands=("nvidia-smi -i {gpu} --query-gpu=pcie.link.gen.gpucurrent,pcie.link.width.current --format=csv",
                  "nvidia-smi topo -m",
                  "cat /proc/cmdline"),
        judge=partial(_judged, test="bandwidth", measured=_copy_speed),
        needs=("X01",), reads=("active",), active=True, each=True,
    ),
    DiagnosticCheck(
        "X03", CheckStage.FUNCTIONAL, "the GPUs' memory keeps what is written to it",
        how="a pattern and its inverse in 1 GiB (at most half of the free memory), written and verified",
        remedy="The GPU's memory is faulty. Take it out of service, look at ECC and row remapping, run DCGM's memory "
        "test; if that fails, too, replace the GPU. Without ECC this is the only sign.",
        commands=(OUT_OF_SERVICE, "nvidia-smi -i {gpu} -q -d ECC,ROW_REMAPPER", "dcgmi diag -r memtest -i {gpu}"),
        judge=partial(
            _judged,
            test="memory",
            measured=lambda context, runs: passed(
                f"{_count(runs)}, {min(run.bytes or 0 for run in runs) >> 20} MiB each"
            ),
        ),
        needs=("X01",), reads=("active",), active=True, each=True,
    ),
    DiagnosticCheck(
        "X04", CheckStage.FUNCTIONAL, "GPUs joined by NVLink copy to each other, rightly and faster than over PCIe",
        how="cuDeviceCanAccessPeer and cuMemcpyPeer of up to 64 MiB both ways, verified; every direct neighbour, "
        "with NVSwitches a ring",
        remedy="With NVSwitches: check that the fabric manager runs and both GPUs are registered. Else look at the "
        "links' state and errors, at ACS (off on bare metal) and the IOMMU. Drain the node and reset the GPUs "
        "together; if a link stays down, inspect the bridge or board.",
        commands=("nvidia-smi topo -p2p r",
                  "nvidia-smi nvlink -s -i {gpu}",
                  "systemctl status nvidia-fabricmanager",
                  "lspci -vvv | grep ACSCtl"),
        judge=check_reaches, needs=("X01", "F03"), reads=("active",), active=True, each=True,
    ),
)  # fmt: skip
