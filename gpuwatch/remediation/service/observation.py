"""What the remediator observes, for how long the node has been proven healthy, and when the next cycle is due."""

import random
from collections import deque
from typing import NamedTuple

from gpuwatch.agent.client import ViewSource
from gpuwatch.kube.objects import NodeObject
from gpuwatch.model.clock import Clock
from gpuwatch.model.view import STALE_INTERVALS
from gpuwatch.remediation.planning.evidence import FRESH_SECONDS, Observation, is_clean, is_fresh
from gpuwatch.remediation.planning.policy import Policy

FAILURE_SPREAD = 1.0
"""News waits at random up to so many seconds after a cycle that failed."""

NEWS_AT_ONCE = 10
NEWS_SECONDS = 5.0
"""News that a pod can cause at will starts a cycle at once so many times in a row, then once in so many seconds."""

BACKOFF_AFTER = 3
LONGEST_BACKOFF = 60.0
"""After so many cycles in a row with the same steps each next one waits twice as long: another writer undoes them."""


# A fleet that falls sick in one instant
#
# A thousand remediators then ask the API server at the same moment, and the budget may let a hundred of them act. If
# all continue as fast as they can, each of the five requests of those hundred up to the taint waits behind thousands,
# and the last taint is written when nearly all requests are done. Random delays harm the usual case, where one node is
# sick and should be tainted at once, as it does not know how many others are. And they do not even help: with up to a
# second for each of a thousand nodes the last taint came a second later than with what follows, as more remediators
# began what they could not complete.
#
# But the first answer shows the load: requests are served about in their order, so the longer the queue, the longer the
# read of the Node takes. A remediator with a late answer is far behind, and leaves the API server alone for a multiple
# of its wait. So the others, each with four requests more, follow one by one, in the order in which they were answered,
# and when the budget is used up, those behind find with two reads that there is no slot. A quick answer causes no wait.
# Nor does one that takes as long as answers did while the node was healthy: that server is far away, or always slow.
#
# Where the budget is a share of the Nodes, chance could choose that share of the remediators, who then wait less. It
# was tried and made it worse: they contend for slots at the same moment, 160 to 260 lost one to another node where in
# the order of the answers 50 did, and the last taint came one to two seconds later.

USUAL_SECONDS = 0.05
"""The Node is read in a few milliseconds, on a busy machine in a few dozen; what takes longer may be a queue."""

READS, LONGER = 5, 2.0
"""It is no queue where an answer took less than LONGER times as long as the quickest of the last READS. A remediator
that has read the Node less often may have started together with many others.
"""

TURN, LONGEST_TURN = 50.0, 10.0
"""The wait: TURN times the excess over the usual time, LONGEST_TURN seconds at most, and at random a tenth more."""

TURN_SECONDS = 60.0
"""At most one such wait in so many seconds."""


class HoldTimer:
    """For how long a condition has held without a break, by a monotonic clock. Unobserved time does not count."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None
        self._observed = 0.0

    def update(self, holds: bool, gap: float) -> float:
        """Seconds for which it has held; from 0 again after more than `gap` seconds without an update."""
        now = self._clock.monotonic()
        if not holds:
            self._since = None
            return 0.0
        if self._since is None or now - self._observed > gap:
            self._since = now
        self._observed = now
        return now - self._since


class ObservationTracker:
    """Joins the newest View with its age and with the time for which it has proven the node healthy."""

    def __init__(self, views: ViewSource, clock: Clock) -> None:
        self._views, self._clean = views, HoldTimer(clock)

    def observe(self, node: NodeObject | None, policy: Policy, remarks: tuple[str, ...]) -> Observation:
        """The observation now. `node` None: it has not been read, and is not known to be healthy."""
        view, age = self._views.view, self._views.age
        clean = node is not None and is_clean(Observation(view=view, age=age), node, policy)
        interval = view.snapshot.interval if view else 0.0
        gap = max((STALE_INTERVALS + 1) * interval, 1.5 * FRESH_SECONDS)
        return Observation(view=view, age=age, clean_for=self._clean.update(clean, gap), remarks=remarks)


class ViewFingerprint(NamedTuple):
    """The parts of a View that can change a plan at once; readings that merely vary are left out.

    `latest`: when each finding last occurred. `holders`: pods on GPUs that have a finding; the kubelet is asked
    every 10 to 14 s, so one that began shortly before the fault is listed after it. A pod can change both at will.
    """

    content: object = None
    latest: tuple[float, ...] = ()
    holders: frozenset[tuple[str | None, ...]] = frozenset()


def fingerprint(observation: Observation) -> ViewFingerprint:
    """The fingerprint of the newest View."""
    view = observation.view
    if view is None:
        return ViewFingerprint()
    findings = view.judgement.findings
    repairs = tuple((each.gpu, each.state) for each in view.repairer.gpus) if view.repairer else ()
    content = (
        is_fresh(observation),
        frozenset(f.key for f in findings),
        view.snapshot.host.boot_id,
        view.validations,
        repairs,
        view.attribution.withheld,
    )
    sick = {each.gpu for each in findings}
    uses = [use for use in view.attribution.devices if use.gpu in sick or None in sick]
    work = [holder.workload for use in uses for holder in use.holders]
    holders = frozenset((each.pod_uid, each.namespace, each.pod) for each in work if each.pod)
    return ViewFingerprint(content, tuple(each.latest for each in findings), holders)


class CycleSchedule:
    """When the next cycle is due. News makes it due earlier, but neither a storm of news nor a plan that is never
    completed makes a storm of requests.
    """

    def __init__(self, clock: Clock, chance: random.Random) -> None:
        self._clock, self._chance = clock, chance
        self._due = self._not_before = self._news_until = clock.monotonic()
        self._failing = False
        self._took = deque[float](maxlen=READS)
        self._turned = float("-inf")
        self._steps: object = ()
        self._times = 0

    @property
    def left(self) -> float:
        """Seconds until a cycle is due."""
        return max(0.0, self._due - self._clock.monotonic())

    def wait(self, seconds: float) -> None:
        """The next cycle is due in so many seconds."""
        self._due = self._clock.monotonic() + seconds

    def changed(self, *, again: bool = False) -> None:
        """The View has news; `again`: only such as a pod can cause at will (`ViewFingerprint`)."""
        spread = self._chance.uniform(0, FAILURE_SPREAD) if self._failing else 0.0
        at = max(self._clock.monotonic() + spread, self._not_before)
        if again:
            at = max(at, self._news_until - (NEWS_AT_ONCE - 1) * NEWS_SECONDS)
        if at < self._due:
            self._due = at
            if again:
                self._news_until = max(self._news_until, at) + NEWS_SECONDS

    def succeeded(self, steps: object) -> float:
        """A cycle did `steps`, described without the values they write; the least seconds to wait."""
        self._failing = False
        self._times = self._times + 1 if steps and steps == self._steps else 0
        self._steps = steps
        if self._times < BACKOFF_AFTER:
            return 0.0
        return float(min(2.0 ** min(self._times - BACKOFF_AFTER, 16), LONGEST_BACKOFF))

    def answered(self, took: float) -> None:
        """The Node was read in `took` seconds, and no quarantine is to begin."""
        self._took.append(took)

    def turn(self, took: float) -> float:
        """A quarantine would begin, and the Node was read in `took` seconds: for how long the API server is left alone
        before, whatever the news. 0 after a wait within the last TURN_SECONDS.
        """
        now = self._clock.monotonic()
        usual = max(USUAL_SECONDS, LONGER * min(self._took)) if len(self._took) == READS else USUAL_SECONDS
        if took <= usual or now - self._turned < TURN_SECONDS:
            return 0.0
        wait = min(TURN * (took - usual), LONGEST_TURN) * self._chance.uniform(1.0, 1.1)
        self._turned, self._not_before = now, max(self._not_before, now + wait)
        return wait

    def failed(self, retry_after: float | None) -> None:
        """A cycle failed; the API server asked to be left alone for so many seconds, whatever the news."""
        self._failing = True
        if retry_after:
            self._not_before = self._clock.monotonic() + retry_after
