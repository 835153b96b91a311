"""A histogram on a pod's Prometheus page: the cumulative buckets of all its series, added up.

The pod controls its page. So at most MOST_BUCKETS bounds are taken, and only possible counts: finite, not negative, and
not falling from bucket to bucket.
"""

import math
import re
from collections import defaultdict

MOST_BUCKETS = 64
"""Different `le`; vLLM's longest histogram has 22."""

MOST_SERIES = 4096
"""Samples of one histogram: engines times models times buckets."""

LARGEST_COUNT = 2.0**53
"""Above this a float does not count by one."""

LABELS = rb'\{((?:[^"}\n]++|"(?:[^"\\\n]++|\\.)*+")*+)\}'  # possessive: backtracking costs memory
MOST_LABELS = 4096
"""Bytes of one sample's labels."""

BOUND = re.compile(rb'(?<![A-Za-z0-9_])le *+= *+"((?:[^"\\]++|\\.)*+)"|"(?:[^"\\]++|\\.)*+"')
"""The value of a label `le`, or another value, passed over so that no `le` in it counts. No byte is read twice."""


def buckets(body: bytes, name: str) -> dict[float, float] | None:
    """Upper bound in seconds -> count of all that were at most that long; the last bound is infinite.

    None: the page has no such histogram, or an impossible one.
    """
    pattern = rb"^%s_bucket%s[ \t]+([^ \t\r\n]{1,32})(?=[ \t\r\n]|\Z)" % (re.escape(name).encode(), LABELS)
    found: defaultdict[float, list[float]] = defaultdict(list)
    for number, sample in enumerate(re.finditer(pattern, body, re.MULTILINE)):
        if len(sample[1]) > MOST_LABELS:
            return None
        bounds = [each[1] for each in BOUND.finditer(sample[1]) if each[1] is not None]
        try:
            (bound,), count = map(float, bounds), float(sample[2])
        except ValueError:
            return None
        found[bound].append(count)
        if number >= MOST_SERIES or len(found) > MOST_BUCKETS or math.isnan(bound) or not 0 <= count <= LARGEST_COUNT:
            return None
    totals = {bound: sum(counts) for bound, counts in sorted(found.items())}
    same = len({len(counts) for counts in found.values()}) == 1  # a series with other bounds cannot be added
    if not same or math.inf not in totals or -math.inf in totals or list(totals.values()) != sorted(totals.values()):
        return None
    return totals
