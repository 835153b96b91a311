"""A fleet whose past and future are known: workloads drawn from a table of kinds, each with habits of its own.

Step 0 is Monday 2026-09-07 00:00 UTC. What is here is the truth; `fleet_sight` makes of it what a monitor sees.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from gpuwatch.model.work import WorkClass, WorkloadKey
from gpuwatch.rightsizing.model import mig_profiles
from tests.bench.rightsizing import memory_laws as memory
from tests.bench.rightsizing import work_laws as work
from tests.bench.rightsizing.physics import HARDWARE, Hardware, Physics, physics
from tests.bench.rightsizing.work_laws import DAY, HOUR, at_rate, log_uniform

BEGIN = 1788739200.0
"""Unix seconds of step 0."""

LETTERS = "bcdfghjklmnpqrstvwxz2456789"
CONTEXT = 0.006
"""Of a device's memory that a process with a CUDA context has at least."""


class Pod(NamedTuple):
    """`begin`, `end`: steps with fractions."""

    name: str
    begin: float
    end: float
    gpus: tuple[str, ...]
    node: str
    image: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Workload:
    """The whole truth of one workload. `load`, `need`: by device and step; `need`: share of its device's memory."""

    kind: str
    serving: bool
    key: WorkloadKey
    declared_class: WorkClass | None
    hardware: Hardware
    profile: str | None  # of a MIG instance
    holders: int  # containers on the device
    physics: Physics
    load: tuple[Sequence[float], ...]
    need: tuple[Sequence[float], ...]
    shown: float | None  # share of memory that a preallocator takes at once, whatever it needs
    pods: tuple[Pod, ...]
    pause: int  # steps of the longest rest in its habits, had nobody left
    context: bool  # a process has the GPU open, also without work
    beat: tuple[float, float]  # a health check: seconds it takes, seconds from one to the next; 0: none
    grain: float  # seconds of one request, where few come; 0: no matter
    programs: tuple[str, ...]
    cpu_throttled: float


class Kind(NamedTuple):
    """A row: how many of 100, who owns it, what it does, what it needs, and what becomes of it."""

    weight: float
    owners: tuple[str, ...]
    law: work.Draw
    memory: tuple[memory.Draw, ...]
    serving: bool = False
    dies: bool = False  # users leave, the pod stays
    program: tuple[str, ...] = ("python",)
    preallocates: bool = False
    gang: str = ""  # spare, seldom, all
    late: bool = False  # deployed ahead of its launch
    hourly: bool = False  # pods of minutes
    starved: bool = False


SERVER, BATCH, AUTHOR = (
    ("Deployment", "Deployment", "StatefulSet", "Pod"),
    ("Job", "PyTorchJob", "Pod"),
    ("StatefulSet", "Notebook"),
)
SERVED = (memory.flat, memory.by_load, memory.by_load, memory.bursts, memory.bursts, memory.growth, memory.filling)
TRAINED = (memory.flat, memory.flat, memory.flat, memory.evaluation, memory.evaluation, memory.growth)
LLM = (("vllm",), ("sglang",), ("tritonserver",))

KINDS: dict[str, Kind] = {
    "serving": Kind(17, SERVER, work.traffic, SERVED, serving=True),
    "serving, office hours": Kind(8, SERVER, work.office_traffic, SERVED, serving=True),
    "serving, memory in bursts": Kind(4, SERVER, work.traffic, (memory.bursts,), serving=True),
    "serving, memory grows": Kind(4, SERVER, work.traffic, (memory.growth,), serving=True),
    "serving, preallocates": Kind(7, SERVER, work.traffic, SERVED, serving=True, preallocates=True),
    "serving, a trickle": Kind(3, SERVER, work.trickle, (memory.flat,), serving=True),
    "serving, started as a job": Kind(
        1.5, ("Job", "SlurmJob"), work.office_traffic, SERVED, serving=True, program=("vllm",)
    ),
    "serving, before its launch": Kind(1, SERVER, work.traffic, SERVED, serving=True, late=True),
    "server nobody asks any more": Kind(6, SERVER, work.traffic, SERVED, serving=True, dies=True),
    "office server nobody asks any more": Kind(2, SERVER, work.office_traffic, SERVED, serving=True, dies=True),
    "never used": Kind(5, (*SERVER, *AUTHOR, *BATCH), work.silent, (memory.flat,)),
    "training": Kind(9, BATCH, work.training, TRAINED),
    "training, sequences grow": Kind(1, BATCH, work.training, (memory.curriculum,)),
    "training, waits for data": Kind(4, BATCH, work.waiting_for_data, TRAINED),
    "training, ended but sleeps": Kind(3, BATCH, work.training, TRAINED, dies=True),
    "gang": Kind(2.5, BATCH, work.training, TRAINED, gang="all"),
    "gang with a spare GPU": Kind(2, BATCH, work.training, TRAINED, gang="spare"),
    "gang with a seldom used GPU": Kind(1, BATCH, work.training, TRAINED, gang="seldom"),
    "starved of input": Kind(4, BATCH, work.starved, TRAINED, starved=True),
    "every hour for minutes": Kind(4, ("CronJob",), work.pulse, (memory.runs,), hourly=True),
    "nightly, in a standing pod": Kind(3, ("Deployment", "Pod"), work.nightly, (memory.flat, memory.evaluation)),
    "weekly, in a standing pod": Kind(0.5, ("Deployment", "Pod"), work.weekly, (memory.flat,)),
    "notebook": Kind(5, AUTHOR, work.author, (memory.sessions,)),
    "notebook, twice a week": Kind(2.5, AUTHOR, work.twice_a_week, (memory.sessions,)),
    "notebook, abandoned": Kind(5, AUTHOR, work.author, (memory.sessions,), dies=True),
}


def fleet(seed: int, size: int, steps: int) -> tuple[Workload, ...]:
    """So many workloads, kinds in the proportions of the table (the rest by chance), each with its own randomness."""
    rng = Random(f"fleet {seed}")
    whole = sum(kind.weight for kind in KINDS.values())
    names = [name for name, kind in KINDS.items() for _ in range(int(size * kind.weight / whole))]
    names += rng.choices(list(KINDS), [kind.weight for kind in KINDS.values()], k=size - len(names))
    rng.shuffle(names)
    return tuple(drawn(Random(f"{seed} {at} {name}"), name, at, steps) for at, name in enumerate(names))


def drawn(rng: Random, name: str, at: int, steps: int) -> Workload:
    """One workload of a kind."""
    kind = KINDS[name]
    hardware = rng.choices([each for _, each in HARDWARE], [weight for weight, _ in HARDWARE])[0]
    key = named(rng, kind, at)
    load = kind.law(rng, steps)
    pause = work.longest_rest(load)
    begin, end = lifetime(rng, kind, steps)
    if kind.dies:
        load = work.dead_after(load, max(0, rng.randrange(-4 * DAY, 14 * DAY)))
    if kind.late:
        work.clear(load, 0, begin + log_uniform(rng, 2 * HOUR, 4 * DAY))
    count = rng.choice((2, 4, 8)) if kind.gang else 1
    pods = tuple(lives(rng, kind, key, (begin, end), steps, count))
    starts = {max(0, int(pod.begin)) for pod in pods}
    loads = ganged(rng, kind, load, count)
    context = bool(any(load)) or rng.random() < 0.5
    profile, holders = placement(rng, kind, hardware)
    needs = [each / holders for each in rng.choice(kind.memory)(rng, load, starts)] if context else [0.0] * steps
    return Workload(
        kind=name,
        serving=kind.serving,
        key=key,
        declared_class=say(rng, kind),
        hardware=hardware,
        profile=profile,
        holders=holders,
        physics=physics(rng),
        load=loads,
        need=tuple([CONTEXT] * steps if each is not loads[0] and kind.gang == "spare" else needs for each in loads),
        shown=rng.uniform(0.8, 0.95) if kind.preallocates else None,
        pods=pods,
        pause=pause,
        context=context,
        beat=(log_uniform(rng, 0.01, 0.2), log_uniform(rng, 10, 120))
        if kind.serving and rng.random() < 0.5
        else (0, 0),
        grain=min(each for each in load if each) * work.STEP if name == "serving, a trickle" else 0.0,
        programs=rng.choice(LLM) if kind.preallocates else kind.program,
        cpu_throttled=rng.uniform(0.1, 0.9) if kind.starved and rng.random() < 0.5 else rng.uniform(0, 0.08),
    )


def named(rng: Random, kind: Kind, at: int) -> WorkloadKey:
    """Who owns it. A few names sound like something else."""
    owner = rng.choice(kind.owners)
    sounds = {"Notebook": "notebook", "StatefulSet": "jupyter" if not kind.serving else "api"}
    name = f"{sounds.get(owner, rng.choice(('api', 'model', 'run', 'team', 'search')))}-{at}"
    namespace = "" if owner == "SlurmJob" else f"team-{rng.randrange(12)}"
    return WorkloadKey(namespace=namespace, name=name, container="main", kind=owner, image=f"registry/{name}:1")


def say(rng: Random, kind: Kind) -> WorkClass | None:
    """One in six says what it is; nobody lies."""
    if rng.random() > 1 / 6:
        return None
    if kind.serving:
        return "serving"
    return "notebook" if kind.owners == AUTHOR else "batch" if kind.owners == BATCH else None


def lifetime(rng: Random, kind: Kind, steps: int) -> tuple[float, float]:
    """Steps of begin and end: most are older than the history; Jobs that work come to an end."""
    if kind.late:
        return rng.uniform(0, 14 * DAY), steps
    if kind.owners == BATCH and not kind.dies:
        begin, length = rng.uniform(-20 * DAY, 14 * DAY), log_uniform(rng, 6 * HOUR, 40 * DAY)
        return (begin, begin + length) if begin + length > 2 * DAY else lifetime(rng, kind, steps)
    return rng.uniform(-60 * DAY, 0) if rng.random() < 0.65 else rng.uniform(0, 12 * DAY), steps


def lives(
    rng: Random, kind: Kind, key: WorkloadKey, life: tuple[float, float], steps: int, count: int
) -> Iterator[Pod]:
    """Its pods: one, or one after the other where it is rolled out anew; a CronJob's live for minutes."""
    begin, end = life
    node = f"node-{rng.randrange(60)}"
    if kind.hourly:
        lasts, minute = log_uniform(rng, 0.4, 5), rng.uniform(0, HOUR - 5)
        for hour in range(max(0, int(begin)) // HOUR, steps // HOUR):
            at = hour * HOUR + minute
            yield Pod(
                f"{key.name}-{29000000 + hour * 60}-{suffix(rng)}",
                at,
                at + lasts,
                cards(rng, count),
                node,
                str(key.image),
            )
        return
    rolls = key.kind == "Deployment" and rng.random() < 0.6
    turns = (
        [step for step in at_rate(rng, steps, log_uniform(rng, 2 * DAY, 30 * DAY)) if begin < step < end]
        if rolls
        else []
    )
    same = key.kind == "StatefulSet"
    version = 1
    for first, last in zip((begin, *turns), (*turns, end), strict=True):
        version += rng.random() < 0.5  # else the same image with other settings
        name = f"{key.name}-0" if same else f"{key.name}-{suffix(rng)}{suffix(rng)}-{suffix(rng)}"
        yield Pod(name, first, last, cards(rng, count), node, f"registry/{key.name}:{version}")


def suffix(rng: Random) -> str:
    """Five letters as Kubernetes draws them."""
    return "".join(rng.choices(LETTERS, k=5))


def cards(rng: Random, count: int) -> tuple[str, ...]:
    """Uuids of GPUs nobody else has."""
    return tuple(f"GPU-{rng.getrandbits(64):016x}" for _ in range(count))


def ganged(rng: Random, kind: Kind, load: list[float], count: int) -> tuple[Sequence[float], ...]:
    """The load of each GPU of a pod: all the same, but for the last one of some gangs."""
    loads: list[Sequence[float]] = [load] * count
    if kind.gang == "spare":
        loads[-1] = [0.0] * len(load)
    elif kind.gang == "seldom":
        loads[-1] = work.seldom(rng, len(load))
    return tuple(loads)


def placement(rng: Random, kind: Kind, hardware: Hardware) -> tuple[str | None, int]:
    """MIG profile and containers on the device: most have a whole GPU alone."""
    chance = rng.random()
    if kind.gang or kind.preallocates or chance > 0.12:
        return None, 1
    if chance < 0.06 and hardware.mig:
        return rng.choice(mig_profiles.of(hardware.model, hardware.total)[:-1]).name, 1
    return None, rng.randint(2, 4)
