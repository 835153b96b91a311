"""Comparison of what was found with what a baseline expects: for the node, for each GPU, for measured copies."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpuwatch.diagnose.active.results import DeviceRun
from gpuwatch.diagnose.baseline.expectation import GPU_VALUES, NODE_VALUES
from gpuwatch.diagnose.check import CheckContext, CheckVerdict, failed, passed, skipped
from gpuwatch.diagnose.checks.per_gpu import gpu_list

NOTHING = "nothing is expected; a baseline (--expect) says what is"


class BaselineKey(NamedTuple):
    """One key of the baseline. `fits`: whether a value is as expected; `name`: what precedes `text` in messages, where
    the text does not name the value itself.
    """

    key: str
    fits: Callable[[Any, Any], bool] = lambda found, expected: bool(found == expected)
    text: Callable[[Any], str] = str
    commands: Callable[[Any], tuple[str, ...]] | None = None
    """Commands that set the expected value, where they depend on it; None: those of the row."""
    name: str = ""

    def named(self, value: Any) -> str:
        """`driver 550.54.15`."""
        return f"{self.name} {self.text(value)}".lstrip()


def is_version(found: str, prefix: str) -> bool:
    """`570.86` fits 570.86.15 and not 570.860.1."""
    return found.startswith(prefix) and not (prefix[-1:].isdigit() and found[len(prefix) : len(prefix) + 1].isdigit())


def at_least(found: float, expected: float) -> bool:
    """More than expected is no fault."""
    return found >= expected


def is_link_speed(found: float, expected: float) -> bool:
    """NVML reports megabytes per second; a baseline may have the data sheet's figure."""
    return found >= expected * 0.99


def is_watts(found: float, expected: float) -> bool:
    """To the watt."""
    return abs(found - expected) < 1


def on_or_off(name: str) -> Callable[[bool], str]:
    """`ECC` -> `ECC on`, `ECC off`."""
    return lambda value: f"{name} {'on' if value else 'off'}"


def nvidia_smi_command(option: str) -> Callable[[bool], tuple[str, ...]]:
    """The command that switches it on or off for one GPU."""
    return lambda wanted: (f"sudo nvidia-smi -i {{gpu}} {option} {int(wanted)}",)


def gigabytes(value: float) -> str:
    """Bytes -> `85.9 GB`."""
    return f"{value / 1e9:.4g} GB"


def of_node(answer: Callable[..., CheckVerdict], row: BaselineKey) -> Callable[[CheckContext], CheckVerdict]:
    """A `judge` of a value that the node has once. `answer`: the verdict on a difference."""

    def judge(context: CheckContext) -> CheckVerdict:
        expected = getattr(context.expect, row.key)
        if expected is None:
            return skipped(NOTHING)
        found = NODE_VALUES[row.key](context.facts)
        if found is None:
            return skipped(f"not read; {expected} is expected")
        if row.fits(found, expected):
            return passed(row.text(found))
        evidence = {"found": row.text(found), "expected": str(expected)}
        return answer(f"{row.named(found)}, expected {expected}", evidence)

    return judge


def of_each_gpu(answer: Callable[..., CheckVerdict], *rows: BaselineKey) -> Callable[[CheckContext], CheckVerdict]:
    """A `judge` of values that each GPU has. `answer`: the verdict on a difference."""

    def judge(context: CheckContext) -> CheckVerdict:
        asked = _asked(context, rows)
        if not asked:
            return skipped(NOTHING)
        known: dict[int, Values] = {}
        for gpu in context.gpus:
            found = ((row, GPU_VALUES[row.key](gpu), expected) for row, expected in asked)
            if values := [each for each in found if each[1] is not None]:
                known[gpu.identity.index] = values
        if not known:
            return skipped("no GPU reports it")
        bad = {index: text for index, values in known.items() if (text := _differences(values))}
        if not bad:
            texts = (", ".join(row.text(value) for row, value, _ in values) for values in known.values())
            return passed("; ".join(dict.fromkeys(texts)))
        evidence = {f"gpu {index}": text for index, text in bad.items()}
        commands = next((row.commands(expected) for row, expected in asked if row.commands), None)
        first = next(iter(bad.values()))
        return answer(f"{gpu_list(tuple(bad))}: {first}", evidence, gpus=tuple(bad), commands=commands)

    return judge


BANDWIDTHS = (
    BaselineKey("host_to_device", at_least, lambda v: f"{gigabytes(v)}/s from host to device"),
    BaselineKey("device_to_host", at_least, lambda v: f"{gigabytes(v)}/s from device to host"),
    BaselineKey("peer_bandwidth", at_least, lambda v: f"{gigabytes(v)}/s between GPUs"),
)


def check_copy_bandwidth(context: CheckContext) -> CheckVerdict:
    """Judges every copy that the active checks timed."""
    asked = _asked(context, BANDWIDTHS)
    if not asked:
        return skipped(NOTHING)
    measured: list[tuple[DeviceRun, Values]] = []
    for run in context.facts.active.runs if context.facts.active else ():
        found = ((row, getattr(run, row.key), expected) for row, expected in asked)
        values = [each for each in found if each[1] is not None]
        if values and (run.index is None or context.selects(run.index)):
            measured.append((run, values))
    if not measured:
        return skipped("no bandwidth was measured")
    slow = [(run, text) for run, values in measured if (text := _differences(values))]
    if not slow:
        return passed(f"{len(measured)} measurements")
    gpus = tuple(dict.fromkeys(run.index for run, _ in slow if run.index is not None))
    evidence: dict[str, str] = {}
    for run, text in slow:
        name = f"gpu {run.index}" if run.index is not None else run.device
        evidence[name if run.peer is None else f"{name} to {run.peer}"] = text
    return failed(f"{gpu_list(gpus)}: {slow[0][1]}", evidence, gpus=gpus)


def _asked(context: CheckContext, rows: tuple[BaselineKey, ...]) -> list[tuple[BaselineKey, Any]]:
    """The rows for which the baseline has an expectation, each with it."""
    return [(row, expected) for row in rows if (expected := getattr(context.expect, row.key)) not in (None, ())]


Values = list[tuple[BaselineKey, Any, Any]]
"""Row, found, expected."""


def _differences(values: Values) -> str:
    """`ECC off, expected ECC on`, of all rows that do not fit; empty where all do."""
    texts = []
    for row, value, expected in values:
        if not row.fits(value, expected):
            wanted = " or ".join(expected) if isinstance(expected, tuple) else row.text(expected)
            texts.append(f"{row.named(value)}, expected {wanted}")
    return ", ".join(texts)
