"""gpuwatch and the other rules see a fleet for two weeks; at several moments each one's advice meets the truth."""

import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gpuwatch.config import RightsizingConfig
from gpuwatch.rightsizing.findings.judge import recommend
from gpuwatch.rightsizing.model import mig_profiles
from gpuwatch.rightsizing.model.recommendation import FindingKind, Recommendation, RecommendedAction
from gpuwatch.rightsizing.model.usage import FleetFacts
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from tests.bench.rightsizing.fleet_sight import Sight, device_total, windows
from tests.bench.rightsizing.fleet_world import BEGIN, Workload, fleet
from tests.bench.rightsizing.rival import Kruize, Pruner
from tests.bench.rightsizing.truth import Here, Slower, here, peak, slower, usable
from tests.bench.rightsizing.work_laws import DAY, HOUR, STEP

MOMENTS = {
    "Sun 03:00, day 6": 6 * DAY + 3 * HOUR,
    "Tue 14:00, day 8": 8 * DAY + 14 * HOUR,
    "Fri 19:30, day 11": 11 * DAY + 19 * HOUR + 6,
    "Sun 03:00, day 13": 13 * DAY + 3 * HOUR,
    "Mon 07:00, day 14": 14 * DAY + 7 * HOUR,
}
"""Steps. The two in the middle of a weekend and the one before a working week are the hard ones."""

DAYS = (1, 3, 7)
AFTER = 14 * DAY
STEPS = max(MOMENTS.values()) + AFTER
OLD = 40 * 60 / STEP
"""Steps: the product's promise, `idle_after` and `grace`, is half an hour after ten minutes."""

RIVALS = {
    "Kruize cost (p60)": (0.60, True),
    "Kruize performance (p98)": (0.98, True),
    "p60, memory alone": (0.60, False),
    "p98, memory alone": (0.98, False),
}


class Idle(NamedTuple):
    """One container's device at a moment. `rests`: it will do no work for 1, 3, 7 days.

    `old` and `over` are true of a pod's device only where they are of all that the pod has: a spare GPU of a gang at
    work is another finding.
    """

    moment: str
    kind: str
    serving: bool
    finding: FindingKind | None
    action: RecommendedAction | None
    pruned: bool  # by gpu-pruner's rule
    seen: bool  # its utilization can be read
    old: bool  # held and without work for longer than the product's promise
    rests: tuple[bool, ...]
    untouched: bool  # nobody will use it at all for a day
    over: float | None  # hours since it has rested longer than its habits ever do; None: not yet, or somebody will come


class Size(NamedTuple):
    """One advice on size. `memory`: it lacks some within 7 and 14 days; `slower`: in truth, on the instance."""

    moment: str
    rule: str
    kind: str
    action: str
    profile: str
    memory: tuple[bool, bool]
    slower: Slower | None
    low: float | None
    high: float | None
    preallocates: bool
    saved: float


class Played(NamedTuple):
    """One fleet."""

    seed: int
    windows: int
    seconds: float
    idle: tuple[Idle, ...]
    sizes: tuple[Size, ...]
    other: tuple[tuple[str, str, FindingKind], ...]  # moment, kind, finding
    learning: dict[str, tuple[int, int]]  # of all workloads, by moment


def play(seed: int, size: int, every: int = 1, config: RightsizingConfig = RightsizingConfig()) -> Played:  # noqa: B008
    """A whole fleet through the real ledger and the real rules. `every`: steps of five minutes in a window."""
    workloads = fleet(seed, size, STEPS)
    sights = [Sight(workload, seed, STEPS, every) for workload in workloads]
    ledger, kruize, pruner = UsageLedger(config), Kruize(), Pruner()
    idle: list[Idle] = []
    sizes: list[Size] = []
    other: list[tuple[str, str, FindingKind]] = []
    learning = {}
    count, spent, first = 0, 0.0, 0
    for moment, step in MOMENTS.items():
        for window in windows(sights, first, step, every):
            kruize.add(window)
            pruner.add(window)
            begun = time.thread_time()
            ledger.add(window)
            spent += time.thread_time() - begun
            count += 1
        first, now = step, BEGIN + step * STEP
        advice = recommend(ledger.summaries(now), FleetFacts(namespaces=ledger.namespaces(now)), config, now)
        learning[moment] = (advice.learning, advice.workloads)
        idle += idles(moment, step, here(workloads, step), advice.items, pruner)
        named = {workload.key.name: workload for workload in workloads}
        sizes += ours(moment, step, named, advice.items)
        sizes += theirs(moment, step, workloads, kruize)
        other += [(moment, named[item.target.name].kind, item.kind) for item in advice.items if item.target.name]
    return Played(seed, count, spent, tuple(idle), tuple(sizes), tuple(other), learning)


def idles(
    moment: str, step: int, held: Iterable[Here], items: Iterable[Recommendation], pruner: Pruner
) -> Iterator[Idle]:
    """What each hold really is, and what is said of it."""
    declared_class = {
        gpu: item
        for item in items
        if item.kind in (FindingKind.IDLE_HOLDER, FindingKind.NEVER_USED)
        for gpu in item.target.gpus
    }
    now = BEGIN + step * STEP
    for each in held:
        item = declared_class.get(each.gpu)
        rests = tuple(each.rests(step, days) for days in DAYS)
        whole = [each._replace(place=place) for place in range(len(each.pod.gpus))]
        rested = min(device.rested(step) for device in whole)
        yield Idle(
            moment=moment,
            kind=each.workload.kind,
            serving=each.workload.serving,
            finding=item.kind if item else None,
            action=item.action if item else None,
            pruned=pruner.idle(each.pod.name, each.gpu, now),
            seen=pruner.knows(each.pod.name, each.gpu, now),
            old=rested > OLD,
            rests=rests,
            untouched=each.untouched(step, 1),
            over=over(whole, step, rested),
        )


def over(whole: Iterable[Here], step: int, rested: int) -> float | None:
    """Hours since a pod's life is over, as `Idle.over`."""
    whole = tuple(whole)
    since = rested - max(OLD, whole[0].workload.pause)
    return since / HOUR if since > 0 and all(device.untouched(step, DAYS[-1]) for device in whole) else None


def ours(moment: str, step: int, named: dict[str, Workload], items: Iterable[Recommendation]) -> Iterator[Size]:
    """gpuwatch's advice on size, against what comes."""
    for item in items:
        if item.action not in (RecommendedAction.RESIZE, RecommendedAction.SHARE) or item.target.name is None:
            continue
        work = named[item.target.name]
        predicted, change = item.predicted, item.change
        low, high = (predicted.slowdown_low, predicted.slowdown_high) if predicted else (None, None)
        if item.action is RecommendedAction.RESIZE and change.to_resource:
            profile = change.to_resource.removeprefix("nvidia.com/mig-")
            yield resized(moment, step, "gpuwatch", work, profile)._replace(low=low, high=high)
        elif item.action is RecommendedAction.SHARE and change.replicas:
            yield shared(moment, step, work, change.replicas)


def theirs(moment: str, step: int, workloads: Iterable[Workload], kruize: Kruize) -> Iterator[Size]:
    """The same for the other rules, on all that has one GPU alone now."""
    for work in workloads:
        if len(work.load) > 1 or work.holders > 1 or not any(pod.begin < step < pod.end for pod in work.pods):
            continue
        for rule, (share, mixed) in RIVALS.items():
            profile = kruize.profile(work.key.name, share, mixed)
            if profile is not None:
                yield resized(moment, step, rule, work, profile.name)


def resized(moment: str, step: int, rule: str, work: Workload, name: str) -> Size:
    """It goes on on an instance."""
    gpu = mig_profiles.model_of(work.hardware.model, work.hardware.total)
    profile = mig_profiles.instance(work.hardware.model, work.hardware.total, name)
    assert gpu is not None, work.hardware.model
    assert profile is not None, name
    most = usable(profile)
    return Size(
        moment=moment,
        rule=rule,
        kind=work.kind,
        action="resize",
        profile=name,
        memory=(peak(work, step, step + 7 * DAY) > most, peak(work, step, step + 14 * DAY) > most),
        slower=slower(work, profile, step, step + 7 * DAY),
        low=None,
        high=None,
        preallocates=work.shown is not None,
        saved=1 - gpu.share(profile),
    )


def shared(moment: str, step: int, work: Workload, replicas: int) -> Size:
    """So many of its like go on on one GPU, and all have their peaks at one time."""
    least = device_total(work) / replicas
    return Size(
        moment=moment,
        rule="gpuwatch",
        kind=work.kind,
        action="share",
        profile=f"1/{replicas}",
        memory=(peak(work, step, step + 7 * DAY) > least, peak(work, step, step + 14 * DAY) > least),
        slower=None,
        low=None,
        high=None,
        preallocates=work.shown is not None,
        saved=1 - 1 / replicas,
    )
