"""Windows for tests of the ledger and its parts: a container on a GPU at work, at rest or unseen, minute by minute."""

from collections.abc import Iterator
from typing import Any

from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.model.usage import UsageWindow

BEGIN = 1_700_006_400.0
"""A midnight, UTC."""

MINUTE = 60.0
HOUR = 3600.0
DAY = 86400.0
H100 = "NVIDIA H100 80GB HBM3"
KEY = WorkloadKey(namespace="team-a", kind="Deployment", name="llm", container="server", image="vllm")


def window(at: float = BEGIN, span: float = MINUTE, **members: Any) -> UsageWindow:
    """One of KEY on GPU-0, of which all was seen."""
    default = {"key": KEY, "pod": "llm-0", "gpu": "GPU-0", "node": "n0", "covered": span, "model": H100}
    return UsageWindow(at=at, span=span, **(default | members))


def stretch(at: float, seconds: float, span: float = MINUTE, **members: Any) -> Iterator[UsageWindow]:
    """Windows of `span`, one after the other, for `seconds`."""
    for number in range(round(seconds / span)):
        yield window(at + number * span, span, **members)


def at_work(at: float, seconds: float, **members: Any) -> Iterator[UsageWindow]:
    """A stretch of hard work."""
    return stretch(at, seconds, **{"busy": 0.8, "watts": 400.0, "pcie": 1e9, "processes": 1} | members)


def at_rest(at: float, seconds: float, **members: Any) -> Iterator[UsageWindow]:
    """A stretch in which a process does nothing."""
    return stretch(at, seconds, **{"busy": 0.0, "watts": 110.0, "pcie": 0.0, "processes": 1} | members)


def unobserved(at: float, seconds: float, **members: Any) -> Iterator[UsageWindow]:
    """A stretch of which nothing is known."""
    return stretch(at, seconds, **{"covered": 0.0} | members)
