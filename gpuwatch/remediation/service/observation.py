"""What the remediator has before its eyes: the newest View, its age, and for how long it has proved the node well."""

from typing import NamedTuple

from gpuwatch.agent.agent_views import ViewSource
from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.clock import Clock
from gpuwatch.remediation.planning.evidence import FRESH_INTERVALS, FRESH_SECONDS, Sight, is_clean, is_fresh
from gpuwatch.remediation.planning.policy import Policy
from gpuwatch.remediation.service.duration import HoldClock


class Sighting:
    """Looks at the View there is; time in which nobody looked proves nothing."""

    def __init__(self, views: ViewSource, clock: Clock) -> None:
        self._views, self._clean = views, HoldClock(clock)

    def look(self, node: NodeObject | None, policy: Policy) -> Sight:
        """What is seen now. `node` None: it has not been read, and is not known to be well."""
        sight = Sight(view=self._views.view, age=self._views.age)
        clean = node is not None and is_clean(sight, node, policy)
        interval = sight.view.snapshot.interval if sight.view else 0.0
        gap = max((FRESH_INTERVALS + 1) * interval, 1.5 * FRESH_SECONDS)
        return Sight(view=sight.view, age=sight.age, clean_for=self._clean.look(clean, gap))


class News(NamedTuple):
    """What of a View can change a plan at once; readings that merely vary are left out. `what` there is to see, and
    when it happened `last`.
    """

    what: object = None
    last: tuple[float, ...] = ()


def news(sight: Sight) -> News:
    """The news of a View."""
    if sight.view is None:
        return News()
    findings = sight.view.judgement.findings
    what = is_fresh(sight), frozenset(each.key for each in findings), sight.view.snapshot.host.boot_id
    return News(what, tuple(each.latest for each in findings))


def grows_old(sight: Sight) -> float | None:
    """Seconds until the View is too old to act on; None: it is, or there is none."""
    if sight.view is None or not is_fresh(sight):
        return None
    return max(FRESH_INTERVALS * sight.view.snapshot.interval, FRESH_SECONDS) - sight.age + 0.01
