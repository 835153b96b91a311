"""What a policy may do about a finding, and the values of Kubernetes that settings name."""

from enum import StrEnum
from typing import Literal

SchedulingLabel = Literal["gpu-class", "gpu-degraded", "gpu-healthy-count", "nvlink"]
"""Labels about GPUs for schedulers, without the domain."""

Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Response(StrEnum):
    """What a policy does about a finding, mildest first; each includes those before it but `ignore`.

    condition: GPUHealthy=False and an Event; taint: no new work; cordon: the node is unschedulable for all pods;
    drain: GPU pods are evicted through the Eviction API.
    """

    IGNORE = "ignore"
    OBSERVE = "observe"
    CONDITION = "condition"
    TAINT = "taint"
    CORDON = "cordon"
    DRAIN = "drain"

    def reaches(self, other: "Response") -> bool:
        """Whether it is at least as strong as `other`."""
        return _ORDER[self] >= _ORDER[other]


_ORDER = {response: place for place, response in enumerate(Response)}
