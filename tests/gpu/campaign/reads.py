"""What the driver answers to each row of FIELDS and IDENTITY, by each of its ways, and how long each call takes."""

import json
import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from gpuwatch.collect.nvml.fields import FIELDS, IDENTITY, FieldId, NvmlCall
from gpuwatch.collect.nvml.gpu import GpuReader, register
from gpuwatch.collect.nvml.library import Failure, NvmlFailure, ask, open_library
from gpuwatch.collect.nvml.links import STATE
from gpuwatch.collect.nvml.numbers import field_numbers
from gpuwatch.collect.nvml.reads import field_values
from gpuwatch.collect.reader.driver import versions
from tests.gpu.campaign.report import Findings

CALLS, CALL_SECONDS = 200, 0.15
"""A way is asked so often, or for so long, whichever ends first."""

READS = 40
AGREE = 0.2
"""Share by which power may differ from one call to the next."""

SLOW_CALL_MS = float(os.environ.get("GPUWATCH_CAMPAIGN_SLOW_MS", "50"))


def open_driver() -> list[GpuReader]:
    """A reader for each GPU of this machine."""
    nvml = open_library()
    ask(nvml, "nvmlInit")
    return [GpuReader(nvml, *register(nvml, index)) for index in range(int(ask(nvml, "nvmlDeviceGetCount")))]


def quantiles(seconds: list[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds."""
    cuts = statistics.quantiles(seconds, n=100) if len(seconds) > 1 else [seconds[0]] * 99
    return cuts[49] * 1e3, cuts[98] * 1e3


class TimedLibrary:
    """A pynvml-shaped module that keeps how long each call of another one took, failed ones too."""

    def __init__(self, nvml: Any) -> None:
        self._nvml, self.seconds = nvml, dict[str, list[float]]()

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._nvml, name)
        if not name.startswith("nvml") or isinstance(member, type) or not callable(member):
            return member

        def call(*args: Any) -> Any:
            began = time.perf_counter()
            try:
                return member(*args)
            finally:
                self.seconds.setdefault(name, []).append(time.perf_counter() - began)

        setattr(self, name, call)
        return call


def fields(work: Path, findings: Findings) -> None:
    """Each way of each row on the first GPU; then whole reads of every GPU, by function of NVML."""
    nvml = open_library()
    ask(nvml, "nvmlInit")
    handle, identity = register(nvml, 0)
    rows = []
    for owner, table in (("identity.", IDENTITY), ("", FIELDS)):
        for row in table:
            ways = [_way(nvml, handle, way) for way in row.ways]
            rows.append({"paths": [owner + path for path in row.paths], "ways": ways})
            answers = [way for way in ways if "error" not in way]
            what, first = ", ".join(rows[-1]["paths"]), (answers or ways)[0]
            shown = f"{first.get('value', first.get('error'))}"
            times = f"{first['way']}: p50 {first['p50_ms']:.3f} ms, p99 {first['p99_ms']:.3f} ms"
            failed = [way for way in ways if way.get("kind") not in (None, Failure.UNSUPPORTED)]
            status = "differs" if failed or first["p50_ms"] > SLOW_CALL_MS else "pass" if answers else "unknown"
            findings.add(what, "an answer, or not supported", shown, status, times)
            compare_ways(what, answers, findings)
            _keep(work, identity.name, rows, {})
    compare_links(nvml, handle, findings)
    timed = TimedLibrary(nvml)
    took: dict[str, list[float]] = {"first": [], "later": []}
    for index in range(int(ask(nvml, "nvmlDeviceGetCount"))):
        reader = GpuReader(timed, *register(timed, index))
        for number in range(READS):
            began = time.perf_counter()
            reader.read(time.time(), time.monotonic(), force=number % 5 == 0)
            took["later" if number else "first"].append(time.perf_counter() - began)
            time.sleep(0.02)
    for name, seconds in took.items():
        p50, p99 = quantiles(seconds)
        findings.between(
            f"whole read of a GPU, {name}, ms", 0, 10 * SLOW_CALL_MS, p50, f"p99 {p99:.2f} ms of {len(seconds)}"
        )
    calls = {name: [len(seconds), *quantiles(seconds)] for name, seconds in sorted(timed.seconds.items())}
    for name, (count, p50, p99) in calls.items():
        findings.between(f"{name}, ms", 0, SLOW_CALL_MS, p50, f"p99 {p99:.3f} ms of {count}")
    _keep(work, identity.name, rows, calls)


def compare_ways(what: str, answers: list[dict[str, Any]], findings: Findings) -> None:
    """A field and the call that stands in for it say the same, but for what changes between them."""
    by_field = [way for way in answers if way["way"].startswith("NVML_FI_") and way["value"] != "None"]
    by_call = [way for way in answers if not way["way"].startswith("NVML_FI_")]
    for field, call in zip(by_field[:1], by_call[:1], strict=False):
        try:
            one, other = float(field["value"]), float(call["value"])
            agree = abs(one - other) <= max(1.0, AGREE * abs(other))
        except ValueError:
            agree = field["value"] == call["value"]
        status = "pass" if agree else "differs"
        findings.add(f"{what}, field and call", call["value"], field["value"], status, f"{field['way']}; {call['way']}")


def compare_links(nvml: Any, handle: Any, findings: Findings) -> None:
    """The state of each NVLink by its field and by its call, also of numbers that are no link."""
    (number,) = field_numbers(nvml, versions(nvml).version or "", (STATE,))
    links = range(nvml.NVML_NVLINK_MAX_LINKS)
    if number is None:
        return
    try:
        fields = field_values(nvml, handle, [(number, link) for link in links])
    except NvmlFailure as error:
        findings.add("NVLink states, field and call", "an answer", str(error), "unknown", STATE)
        return
    by_field, by_call = [], []
    for link in links:
        answer = fields[number, link]
        by_field.append(answer.kind if isinstance(answer, NvmlFailure) else str(bool(answer)))
        try:
            by_call.append(str(bool(ask(nvml, "nvmlDeviceGetNvLinkState", handle, link))))
        except NvmlFailure as error:
            by_call.append(error.kind)
    status = "pass" if by_field == by_call else "differs"
    findings.add("NVLink states, field and call", " ".join(by_call), " ".join(by_field), status, STATE)


def _way(nvml: Any, handle: Any, way: NvmlCall | FieldId) -> dict[str, Any]:
    """The answer as the driver gave it and as gpuwatch reads it, or NVML's error, and the time of a call."""
    if isinstance(way, NvmlCall):
        arguments = tuple(getattr(nvml, a, a) if isinstance(a, str) else a for a in way.args)
        name = way.name + (f"({', '.join(map(str, way.args))})" if way.args else "")
        call: Callable[[], Any] = lambda: ask(nvml, way.name, handle, *arguments)  # noqa: E731
    else:
        numbers = field_numbers(nvml, versions(nvml).version or "", way.names)
        name = ", ".join(f"NVML_FI_{name} = {number}" for name, number in zip(way.names, numbers, strict=True))
        call = lambda: _fields(nvml, handle, numbers)  # noqa: E731
    found: dict[str, Any] = {"way": name}
    seconds, until = [], time.monotonic() + CALL_SECONDS
    while len(seconds) < CALLS and (not seconds or time.monotonic() < until):
        began = time.perf_counter()
        try:
            answer = call()
            seconds.append(time.perf_counter() - began)
        except NvmlFailure as error:
            seconds.append(time.perf_counter() - began)
            found |= {"error": str(error), "kind": error.kind, "code": error.code}
            break
    if "error" not in found:
        try:
            found |= {
                "answer": _plain(answer),
                "value": _plain(way.get(*answer) if isinstance(way, FieldId) else way.get(answer)),
            }
        except (TypeError, ValueError, ArithmeticError, AttributeError, LookupError) as error:
            found |= {"answer": _plain(answer), "error": f"gpuwatch cannot read it: {error!r}", "kind": "defect"}
    p50, p99 = quantiles(seconds)
    return found | {"calls": len(seconds), "p50_ms": p50, "p99_ms": p99}


def _fields(nvml: Any, handle: Any, numbers: tuple[int | None, ...]) -> list[Any]:
    """The answers to all fields of a way, None for one that is not supported beside another that is."""
    known = [number for number in numbers if number is not None]
    if len(known) < len(numbers):
        raise NvmlFailure(Failure.UNSUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, "its number is not known")
    answers = list(field_values(nvml, handle, [(number, 0) for number in known]).values())
    failures = [answer for answer in answers if isinstance(answer, NvmlFailure)]
    for error in failures:
        if len(failures) == len(answers) or error.kind is not Failure.UNSUPPORTED:
            raise error
    return [None if isinstance(answer, NvmlFailure) else answer for answer in answers]


def _plain(answer: Any) -> str:
    """A struct by its members; all else as Python writes it, bounded."""
    members = [name for name, *_ in getattr(answer, "_fields_", ())]
    return (", ".join(f"{name}={getattr(answer, name)!r}" for name in members) or repr(answer))[:400]


def _keep(work: Path, model: str | None, rows: list[dict[str, Any]], calls: dict[str, Any]) -> None:
    document = {"model": model, "bindings": _bindings(), "rows": rows, "calls": calls}
    (work / "fields.json").write_text(json.dumps(document, indent=1, default=str), encoding="utf-8")


def _bindings() -> str:
    from importlib.metadata import version

    return version("nvidia-ml-py")
