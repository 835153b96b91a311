"""Rules in use elsewhere, written anew from their sources, on the same windows.

Kruize (`GenericRecommendationModel.getAcceleratorRequestRecommendation`): one percentile of each interval's highest GPU
utilization, and the same one of a list that mixes memory-copy utilization with memory over the GPU's nominal size; the
first MIG profile whose nominal shares are no less. p60 for "cost", p98 for "performance".

gpu-pruner: a pod whose GPU was below 1 % for 30 minutes, older than that and a grace of 5.
"""

from array import array
from collections import defaultdict
from collections.abc import Sequence

from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.mig_profiles import GpuModel, Profile
from gpuwatch.rightsizing.model.usage import UsageWindow

LEAST = 100 << 20
"""Bytes: readings up to that are dropped."""

LITTLE, IDLE, GRACE = 0.01, 1800.0, 300.0


class Kruize:
    """What it would keep of each workload. `mixed`: as in its source; else memory alone, which is kinder."""

    def __init__(self) -> None:
        self._core: dict[str, array[float]] = defaultdict(lambda: array("f"))
        self._memory: dict[str, array[float]] = defaultdict(lambda: array("f"))
        self._copies: dict[str, array[float]] = defaultdict(lambda: array("f"))
        self._model: dict[str, GpuModel] = {}

    def add(self, window: UsageWindow) -> None:
        """One more interval; only whole GPUs that can be cut."""
        model = mig_profiles.model_of(window.model, window.memory_total)
        if model is None or window.profile is not None or window.busy_high is None:
            return
        self._model[window.key.name] = model
        self._core[window.key.name].append(window.busy_high)
        if (window.memory or 0) > LEAST:
            self._memory[window.key.name].append(window.memory / mig_profiles.GIB / model.memory_gb)
        if window.dram_high is not None:
            self._copies[window.key.name].append(window.dram_high)

    def profile(self, name: str, share: float, mixed: bool) -> Profile | None:
        """What it would give: None is the whole GPU, or no data."""
        model = self._model.get(name)
        memory = [*self._memory[name], *(self._copies[name] if mixed else ())]
        if model is None or not memory:
            return None
        core, need = percentile(self._core[name], share), percentile(memory, share)
        fits = (
            each
            for each in model.plain()
            if each.memory_slices / model.memory_slices >= need and each.sm_fraction_nominal >= core
        )
        found = next(fits, None)
        return None if found is None or found.compute_slices == model.compute_slices else found


class Pruner:
    """When each container's device was last at 1 % or more, and when it was seen first and last."""

    def __init__(self) -> None:
        self._worked: dict[tuple[str, str], float] = {}
        self._seen: dict[tuple[str, str], float] = {}

    def add(self, window: UsageWindow) -> None:
        """One more window; without utilization it is none."""
        if window.busy is None:
            return
        slot, end = (window.pod, window.gpu), window.at + window.span
        self._worked.setdefault(slot, window.at + GRACE)
        self._seen[slot] = end
        if max(window.busy, window.busy_high or 0.0) >= LITTLE:
            self._worked[slot] = end

    def knows(self, pod: str, gpu: str, now: float) -> bool:
        """Whether its utilization was seen lately."""
        seen = self._seen.get((pod, gpu))
        return seen is not None and now - seen < IDLE

    def idle(self, pod: str, gpu: str, now: float) -> bool:
        """Whether it would scale the pod down."""
        return self.knows(pod, gpu, now) and now - self._worked[pod, gpu] >= IDLE


def percentile(values: Sequence[float], share: float) -> float:
    """Of all values, the nearest one."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
