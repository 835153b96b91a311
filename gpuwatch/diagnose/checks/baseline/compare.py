"""How what was found is held against what a baseline expects: for the node, for each GPU, for measurements."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gpuwatch.diagnose.active.results import DeviceRun
from gpuwatch.diagnose.baseline.inventory import active
from gpuwatch.diagnose.check import CheckContext, CheckVerdict, DiagnosticCheck, failed, gpu_list, passed, skipped
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.diagnose.model import CheckStage
from gpuwatch.model.snapshot import Driver, Gpu

NOTHING = "nothing is expected; a baseline (--expect) says what is"

Answer = Callable[..., CheckVerdict]


class Held(NamedTuple):
    """One key of the baseline. `found`: what there is (None: nobody tells); `fits`: whether that is as expected;
    `name`: what it is called, where `words` does not tell.
    """

    key: str
    found: Callable[[Any], Any]
    fits: Callable[[Any, Any], bool] = lambda found, expected: bool(found == expected)
    words: Callable[[Any], str] = str
    commands: Callable[[Any], tuple[str, ...]] | None = None
    """What makes it as expected, where that depends on what is expected; None: as the row says."""
    name: str = ""

    def told(self, value: Any) -> str:
        """`driver 550.54.15`."""
        return f"{self.name} {self.words(value)}".lstrip()


def row(
    id_: str,
    title: str,
    how: str,
    failure: str,
    remedy: str,
    judge: Callable[[CheckContext], CheckVerdict],
    **more: Any,
) -> DiagnosticCheck:
    """A check of the baseline; most need what NVML tells."""
    rest = {"reads": ("view",), "needs": ("N02",)} | more
    return DiagnosticCheck(id_, CheckStage.BASELINE, title, how, failure, remedy, judge, **rest)


def is_version(found: str, prefix: str) -> bool:
    """`570.86` fits 570.86.15 and not 570.860.1."""
    return found.startswith(prefix) and not (prefix[-1:].isdigit() and found[len(prefix) : len(prefix) + 1].isdigit())


def at_least(found: float, expected: float) -> bool:
    """More than expected is no fault."""
    return found >= expected


def is_link_speed(found: float, expected: float) -> bool:
    """NVML tells megabytes per second, people write the data sheet's figure."""
    return found >= expected * 0.99


def is_watts(found: float, expected: float) -> bool:
    """To the watt."""
    return abs(found - expected) < 1


def switched(what: str) -> Callable[[bool], str]:
    """`ECC` -> words for on and off."""
    return lambda value: f"{what} {'on' if value else 'off'}"


def set_by(option: str) -> Callable[[bool], tuple[str, ...]]:
    """What switches it on or off for one GPU."""
    return lambda wanted: (f"sudo nvidia-smi -i {{gpu}} {option} {int(wanted)}",)


def gigabytes(value: float) -> str:
    """Bytes in words."""
    return f"{value / 1e9:.4g} GB"


def speed(value: float) -> str:
    """Bytes per second in words."""
    return f"{value / 1e9:.4g} GB/s"


def slowest_link(gpu: Gpu) -> float | None:
    """Bytes per second."""
    speeds = (link.speed_bytes_per_second for link in active(gpu.nvlinks))
    return min((each for each in speeds if each is not None), default=None)


def driver(facts: NodeFacts) -> Driver:
    """Versions as NVML tells them; unknown without a View."""
    return (facts.view.snapshot.driver if facts.view else None) or Driver()


def toolkit(facts: NodeFacts) -> str | None:
    """The oldest version of the container toolkit found."""
    return min(filter(None, facts.runtime.toolkit.values()), default=None) if facts.runtime else None


def of_node(wrong: Answer, held: Held) -> Callable[[CheckContext], CheckVerdict]:
    """Judges what the node has one of; `found` takes Facts."""

    def judge(context: CheckContext) -> CheckVerdict:
        expected = getattr(context.expect, held.key)
        if expected is None:
            return skipped(NOTHING)
        found = held.found(context.facts)
        if found is None:
            return skipped(f"not seen: nobody tells; {expected} is expected")
        if held.fits(found, expected):
            return passed(held.words(found))
        return wrong(
            f"{held.told(found)}, expected {expected}", {"found": held.words(found), "expected": str(expected)}
        )

    return judge


def of_each_gpu(wrong: Answer, *rows: Held) -> Callable[[CheckContext], CheckVerdict]:
    """Judges what every GPU has one of; `found` takes a Gpu."""

    def judge(context: CheckContext) -> CheckVerdict:
        asked = [(held, expected) for held in rows if (expected := getattr(context.expect, held.key)) not in (None, ())]
        if not asked:
            return skipped(NOTHING)
        found = {gpu.identity.index: _told(asked, gpu) for gpu in context.gpus}
        if not any(found.values()):
            return skipped("not seen: no GPU tells")
        bad = {index: words for index, told in found.items() if (words := _wrongs(told))}
        if not bad:
            return passed(_summary(told for told in found.values() if told))
        evidence = {f"gpu {index}": words for index, words in bad.items()}
        commands = next((held.commands(expected) for held, expected in asked if held.commands), None)
        first = next(iter(bad.values()))
        return wrong(f"{gpu_list(tuple(bad))}: {first}", evidence, gpus=tuple(bad), commands=commands)

    return judge


Told = list[tuple[Held, Any, Any]]
"""What is held, found, expected."""


def _told(asked: list[tuple[Held, Any]], subject: Any) -> Told:
    return [(held, value, expected) for held, expected in asked if (value := held.found(subject)) is not None]


def _wrongs(told: Told) -> str:
    return ", ".join(
        f"{held.told(value)}, expected {_wanted(held, expected)}"
        for held, value, expected in told
        if not held.fits(value, expected)
    )


def _wanted(held: Held, expected: Any) -> str:
    return " or ".join(expected) if isinstance(expected, tuple) else held.words(expected)


def _summary(found: Iterable[Told]) -> str:
    told = dict.fromkeys(", ".join(held.words(value) for held, value, _ in each) for each in found)
    return "; ".join(told)


BANDWIDTHS = (
    Held("host_to_device", lambda run: run.host_to_device, at_least, lambda v: f"{speed(v)} from host to device"),
    Held("device_to_host", lambda run: run.device_to_host, at_least, lambda v: f"{speed(v)} from device to host"),
    Held("peer_bandwidth", lambda run: run.peer_bandwidth, at_least, lambda v: f"{speed(v)} between GPUs"),
)


def of_copies(context: CheckContext) -> CheckVerdict:
    """Judges every copy that the active checks timed."""
    asked = [(held, expected) for held in BANDWIDTHS if (expected := getattr(context.expect, held.key)) is not None]
    if not asked:
        return skipped(NOTHING)
    runs = [run for run in (context.facts.active.runs if context.facts.active else ()) if _means(context, run)]
    measured = [(run, told) for run in runs if (told := _told(asked, run))]
    if not measured:
        return skipped("not seen: no bandwidth was measured")
    slow = [(run, words) for run, each in measured if (words := _wrongs(each))]
    if not slow:
        return passed(f"{len(measured)} measurements")
    gpus = tuple(dict.fromkeys(run.index for run, _ in slow if run.index is not None))
    return failed(f"{gpu_list(gpus)}: {slow[0][1]}", {_pair(run): words for run, words in slow}, gpus=gpus)


def _means(context: CheckContext, run: DeviceRun) -> bool:
    return run.index is None or context.means(run.index)


def _pair(run: DeviceRun) -> str:
    first = f"gpu {run.index}" if run.index is not None else run.device
    return first if run.peer is None else f"{first} to {run.peer}"
