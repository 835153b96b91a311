"""Pages of one known node, kept in tests/golden. `python -m tests.metrics.golden_pages` writes them anew."""

from pathlib import Path
from typing import get_args

from gpuwatch.config import FamiliesConfig, FamilyGroup, MetricsConfig
from gpuwatch.metrics.exposition import Encoder
from gpuwatch.metrics.page_cache import Profiles
from gpuwatch.rightsizing.model.recommendation import FindingKind
from gpuwatch.rightsizing.service.metrics import rightsizing_families
from tests.model.view_factory import full_view
from tests.rightsizing.model.advice_factory import advice, recommendation

EVERYTHING = MetricsConfig(families=FamiliesConfig(groups=get_args(FamilyGroup)))
FOLDER = Path(__file__).parent.parent / "golden"
PAGES = {
    "native.metrics": (("native",), False),
    "native-openmetrics.metrics": (("native",), True),
    "dcgm-4.8.metrics": (("dcgm-4.8",), False),
    "dcgm-4.9.metrics": (("dcgm-4.9",), False),
    "dcgm-both-openmetrics.metrics": (("dcgm-4.8", "dcgm-4.9"), True),
}
"""File -> profiles, OpenMetrics."""


def render(name: str) -> bytes:
    """The page as it is now: two GPUs, one of them with MIG, seen twice one second apart, and some advice."""
    profiles, openmetrics = PAGES[name]
    source = Profiles(EVERYTHING, node="")
    views = [full_view(2, links=2, seed=seed) for seed in (1, 2)]
    for second, view in enumerate(views):
        source.observe(view, float(second))
    body = advice(recommendation("chat", 24.0), recommendation("notes", 12.0, FindingKind.MIG_FIT))
    families = source.collect(views[-1], profiles, extra=rightsizing_families(body, 20))
    return Encoder().encode(families, openmetrics=openmetrics)


if __name__ == "__main__":
    for page in PAGES:
        (FOLDER / page).write_bytes(render(page))
