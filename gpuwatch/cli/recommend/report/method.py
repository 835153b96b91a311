"""How it was judged and what it cannot tell, in the report's own words."""

from collections.abc import Iterator

from gpuwatch.cli.recommend.report.markup import Markup, tag
from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.findings.text import percent


def method(config: RightsizingConfig) -> Iterator[Markup]:
    """Two headings with a few sentences each."""
    yield tag("h2", "How it was judged")
    yield tag(
        "p",
        "For each workload (owner, container, image) the share of time at work is kept in histograms in which newer "
        "days weigh more, and the highest memory of each day. Idle is a GPU without any kernel for more than "
        f"{config.idle_after / 60:g} minutes, and for longer than its user ever paused before. Memory is judged by the "
        "highest daily peak of eight days, its growth and a margin, against what an instance really offers; compute by "
        "the slowdown that an instance with fewer multiprocessors and less bandwidth would cause, 95 % of the time no "
        f"more than {percent(config.max_mig_slowdown)}. Nothing is said of a size before "
        f"{config.min_history / 3600:g} hours of history with {percent(config.min_coverage)} of them seen, a week "
        "where somebody may wait for the work.",
    )
    yield tag("h2", "What it cannot tell")
    yield tag(
        "p",
        "Savings are estimates: GPU-hours that become free, which are money only when somebody else uses them or the "
        "node is given back. A slowdown is computed, not measured: watch the first pod on a smaller GPU. What did not "
        "run in this time was not seen: a yearly report, a failover, tomorrow's larger batch. Several findings about "
        "one workload count once in the sums, and quotas, reserved nodes and MIG layouts not at all, since they are "
        "about the same GPUs.",
    )
