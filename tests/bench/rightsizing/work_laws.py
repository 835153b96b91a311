"""How much users want of a GPU, step by step: laws of life that draw their own habits from wide ranges.

A law gives the share of each step of five minutes in which the user's own kernels run (0..1). Nothing here knows what
gpuwatch would call idle.
"""

import math
from collections.abc import Callable, Sequence
from random import Random

STEP = 300.0
HOUR = 12
DAY = 24 * HOUR
WEEK = 7 * DAY


Draw = Callable[[Random, int], list[float]]
"""Of a law: randomness and steps; step 0 is a Monday 00:00 UTC."""


def log_uniform(rng: Random, low: float, high: float) -> float:
    """Between two positive numbers, each magnitude as likely."""
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def at_rate(rng: Random, steps: int, mean: float) -> list[int]:
    """Moments that come by chance, `mean` steps apart."""
    found, at = [], rng.expovariate(1 / mean)
    while at < steps:
        found.append(int(at))
        at += rng.expovariate(1 / mean)
    return found


def clear(load: list[float], begin: int, length: float) -> None:
    """Rest for a while; parts of steps count."""
    for step in range(max(begin, 0), min(begin + math.ceil(length), len(load))):
        load[step] *= max(0.0, 1 - (begin + length - step))


def silent(rng: Random, steps: int) -> list[float]:
    """Nothing, ever."""
    return [0.0] * steps


def training(rng: Random, steps: int) -> list[float]:
    """Busy, with checkpoints every hour or so."""
    level, every, pause = rng.uniform(0.5, 1.0), rng.randint(6, 8 * HOUR), log_uniform(rng, 0.1, 3.0)
    load = [min(1.0, level * rng.uniform(0.97, 1.03)) for _ in range(steps)]
    for begin in range(rng.randrange(every), steps, every):
        clear(load, begin, pause)
    return load


def waiting_for_data(rng: Random, steps: int) -> list[float]:
    """Training that stands still now and then until data arrives, mostly for about 40 minutes."""
    load = training(rng, steps)
    for begin in at_rate(rng, steps, log_uniform(rng, 8 * HOUR, 4 * DAY)):
        clear(load, begin, 8 * min(3.0, rng.lognormvariate(0, 0.5)))
    return load


def traffic(rng: Random, steps: int) -> list[float]:
    """Requests around the clock, fewer at night and (or) on weekends."""
    level, depth, weekend = log_uniform(rng, 0.02, 0.85), rng.uniform(0, 0.9), rng.uniform(0.2, 1.1)
    peak, noise = rng.uniform(0, DAY), rng.uniform(0.02, 0.3)
    load = []
    for step in range(steps):
        wave = 1 - depth * (0.5 - 0.5 * math.cos(2 * math.pi * (step - peak) / DAY))
        share = level * wave * (weekend if step % WEEK >= 5 * DAY else 1.0)
        load.append(min(1.0, share * rng.lognormvariate(0, noise)))
    for begin in at_rate(rng, steps, log_uniform(rng, 2 * HOUR, 3 * DAY)):  # rushes
        for step in range(begin, min(steps, begin + rng.randint(1, 9))):
            load[step] = min(1.0, load[step] * rng.uniform(1.2, 4))
    return load


def office_traffic(rng: Random, steps: int) -> list[float]:
    """A service nobody asks at night, mostly nobody on weekends, and at times for hours by day; once a long weekend."""
    level, opens, open_for = log_uniform(rng, 0.03, 0.8), rng.uniform(0, DAY), rng.uniform(6, 16) * HOUR
    weekends, holiday = rng.random() < 0.3, rng.randrange(5) + 7 * rng.randrange(steps // WEEK + 1)
    load = []
    for step in range(steps):
        local = (step - opens) % DAY
        day = int((step - opens) // DAY)
        asked = local < open_for and (weekends or day % 7 < 5) and day != holiday
        load.append(min(1.0, level * rng.lognormvariate(0, 0.3)) if asked else 0.0)
    for begin in at_rate(rng, steps, log_uniform(rng, DAY, 6 * DAY)):
        clear(load, begin, log_uniform(rng, HOUR, 5 * HOUR))
    return load


def trickle(rng: Random, steps: int) -> list[float]:
    """A few requests an hour, each a short one."""
    rate, seconds = log_uniform(rng, 0.2, 200) / HOUR, log_uniform(rng, 0.1, 4)
    load, at = [0.0] * steps, rng.expovariate(rate)
    while at < steps:
        load[int(at)] = min(1.0, load[int(at)] + seconds / STEP)
        at += rng.expovariate(rate)
    return load


def nightly(rng: Random, steps: int) -> list[float]:
    """A standing pod that works some hours once a day; some rest on weekends."""
    level, begins, length = rng.uniform(0.2, 1.0), rng.uniform(0, DAY), log_uniform(rng, 0.3, 6) * HOUR
    weekends = rng.random() < 0.6
    load = [0.0] * steps
    for day in range(-1, steps // DAY + 1):
        if weekends or day % 7 < 5:
            begin = int(day * DAY + begins + rng.uniform(-6, 6))
            for step in range(max(begin, 0), min(steps, begin + int(length * rng.uniform(0.7, 1.4)) + 1)):
                load[step] = level
    return load


def weekly(rng: Random, steps: int) -> list[float]:
    """A standing pod that works some hours once a week."""
    level, begins, length = rng.uniform(0.2, 1.0), rng.uniform(0, WEEK), log_uniform(rng, 0.5, 8) * HOUR
    load = [0.0] * steps
    for week in range(-1, steps // WEEK + 1):
        begin = int(week * WEEK + begins + rng.uniform(-12, 12))
        for step in range(max(begin, 0), min(steps, begin + int(length) + 1)):
            load[step] = level
    return load


def cells(rng: Random, load: list[float], begin: int, length: int) -> None:
    """A session at a notebook: cells that run, and thought between them."""
    running = True
    for step in range(max(begin, 0), min(len(load), begin + length)):
        running = rng.random() < (0.6 if running else 0.35)
        if running:
            load[step] = log_uniform(rng, 0.02, 1.0)


def author(rng: Random, steps: int) -> list[float]:
    """A notebook of somebody who comes on most working days; now and then a cell runs overnight."""
    present, begins = rng.uniform(0.6, 1.0), rng.uniform(0, DAY)
    load = [0.0] * steps
    for day in range(steps // DAY):
        if day % 7 < 5 and rng.random() < present:
            begin, length = int(day * DAY + begins), rng.randint(HOUR, 8 * HOUR)
            cells(rng, load, begin, length)
            if rng.random() < 0.05:
                for step in range(begin + length, min(steps, begin + length + rng.randint(4 * HOUR, 14 * HOUR))):
                    load[step] = rng.uniform(0.5, 1.0)
    return load


def twice_a_week(rng: Random, steps: int) -> list[float]:
    """A notebook for an afternoon twice a week, on days of one's own choice."""
    load = [0.0] * steps
    for week in range(steps // WEEK + 1):
        for day in rng.sample(range(5), 2):
            cells(rng, load, week * WEEK + day * DAY + rng.randint(8 * HOUR, 16 * HOUR), rng.randint(6, 5 * HOUR))
    return load


def seldom(rng: Random, steps: int) -> list[float]:
    """One GPU of a gang that only evaluates, some minutes every day or two."""
    load = [0.0] * steps
    for begin in at_rate(rng, steps, log_uniform(rng, 6 * HOUR, 2 * DAY)):
        for step in range(begin, min(steps, begin + rng.randint(1, 6))):
            load[step] = rng.uniform(0.3, 1.0)
    return load


def starved(rng: Random, steps: int) -> list[float]:
    """Kernels that wait for their input most of the time."""
    level = rng.uniform(0.05, 0.35)
    return [level * rng.uniform(0.8, 1.2) for _ in range(steps)]


def pulse(rng: Random, steps: int) -> list[float]:
    """What a Job that is born every hour does while it lives."""
    level = rng.uniform(0.1, 1.0)
    return [level * rng.uniform(0.8, 1.2) for _ in range(steps)]


def longest_rest(load: Sequence[float]) -> int:
    """Steps of the longest time without work between two with it."""
    longest, last = 0, None
    for step, share in enumerate(load):
        if share > 0:
            longest = max(longest, 0 if last is None else step - last - 1)
            last = step
    return longest


def dead_after(load: Sequence[float], step: int) -> list[float]:
    """The same until a moment after which nobody comes any more."""
    return [*load[:step], *(0.0 for _ in load[step:])]
