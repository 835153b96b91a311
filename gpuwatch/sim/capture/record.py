"""Passes calls of the reader to a pynvml-shaped module, and keeps every question with its answer and duration."""

import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml

from gpuwatch.collect.nvml.library import Nvml
from gpuwatch.collect.nvml.reads import VALUE_MEMBERS
from gpuwatch.sim.capture.codec import Pointer, address, encode, is_output, members
from gpuwatch.sim.capture.data import Answer, Question, Recording, error

PASSING = {
    "nvmlDeviceGetSamples": 2,
    "nvmlDeviceGetProcessUtilization": 1,
    "nvmlDeviceGetVgpuUtilization": 1,
    "nvmlDeviceGetVgpuProcessUtilization": 1,
    "nvmlEventSetWait": 1,
    "nvmlEventSetWait_v2": 1,
}
"""Position of an argument that differs at every call (newest time read, time-out) and is no part of the question."""

NEW_HANDLES: dict[str, Callable[..., str]] = {
    "nvmlDeviceGetHandleByIndex": lambda index: f"@gpu{index}",
    "nvmlDeviceGetHandleByIndex_v2": lambda index: f"@gpu{index}",
    "nvmlDeviceGetMigDeviceHandleByIndex": lambda gpu, index: f"{gpu}/mig{index}",
    "nvmlEventSetCreate": lambda: "@events",
}
"""Calls that answer a handle -> its token, from the call's arguments."""


SCALARS = (type(None), bool, int, float, str)


def is_function(name: str, value: Any) -> bool:
    """Whether a member of a pynvml-shaped module asks the driver: pynvml also has constants and classes named so."""
    return name.startswith("nvml") and callable(value) and not isinstance(value, type)


def question(name: str, args: tuple[Any, ...], token: Callable[[Any], str | None]) -> Question:
    """The name and the arguments of a call, without those in PASSING and structs to be filled."""
    kept = (argument for position, argument in enumerate(args) if position != PASSING.get(name))
    return (name, *(_plain(argument, token) for argument in kept if not is_output(argument)))


def _plain(argument: Any, token: Callable[[Any], str | None]) -> Any:
    """Scalars and lists as they are; any other object is a handle and becomes its token."""
    return encode(argument, token) if isinstance(argument, SCALARS) else token(argument)


class Recorder:
    """A pynvml-shaped module that passes everything on to `nvml` and fills `recording`. Thread-safe."""

    def __init__(self, nvml: Nvml, recording: Recording) -> None:
        self._nvml, self.recording = nvml, recording
        self._lock = threading.Lock()
        self._tokens: dict[Any, str] = {}
        self._sources: dict[Any, str] = {}
        self._special = {
            "nvmlDeviceGetFieldValues": self._field_values,
            "nvmlGpmSampleAlloc": self._unnamed,
            "nvmlGpmSampleFree": self._unnamed,
            "nvmlGpmSampleGet": self._gpm_sample,
            "nvmlGpmMigSampleGet": self._gpm_sample,
            "nvmlGpmMetricsGet": self._gpm_metrics,
        }

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._nvml, name)
        if not is_function(name, member):
            return member
        wrapped = functools.partial(self._special.get(name, self._plain), name, member)
        setattr(self, name, wrapped)
        return wrapped

    def _plain(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        asked = question(name, args, self._token)
        answer, microseconds = self._call(asked, function, args)
        if name in NEW_HANDLES:
            answered = self._tokens[_key(answer)] = NEW_HANDLES[name](*asked[1:])
            self._keep(asked, {"handle": answered}, microseconds)
            return answer
        outputs = [argument.contents for argument in args if is_output(argument)]
        if outputs:
            self._keep(asked, {"fills": [members(struct, self._token) for struct in outputs]}, microseconds)
        elif name == "nvmlDeviceGetSamples":
            kind, samples = answer
            rows = [[sample.timeStamp, getattr(sample.sampleValue, VALUE_MEMBERS[kind])] for sample in samples]
            self._keep(asked, {"type": kind, "samples": rows}, microseconds)
        else:
            self._keep(asked, encode(answer, self._token), microseconds)
        return answer

    def _call(self, asked: Question, function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, int]:
        began = time.perf_counter()
        try:
            answer = function(*args)
        except pynvml.NVMLError as failed:
            self._keep(asked, error(failed.value), self._since(began))
            raise
        except pynvml.NVMLLibraryMismatchError:
            self._keep(asked, error(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND), self._since(began))
            raise
        return answer, self._since(began)

    def _field_values(self, name: str, function: Callable[..., Any], handle: Any, fields: list[Any]) -> Any:
        asked = question(name, (handle,), self._token)
        answers, microseconds = self._call(asked, function, (handle, fields))
        self._keep(asked, True, microseconds)
        for wanted, item in zip(fields, answers, strict=True):
            field, scope = wanted if isinstance(wanted, tuple) else (wanted, 0)
            if item.nvmlReturn:
                answer = error(item.nvmlReturn)
            else:
                answer = {"type": item.valueType, "value": getattr(item.value, VALUE_MEMBERS[item.valueType])}
            self._keep((*asked, field, scope), answer, getattr(item, "latencyUsec", 0))
        return answers

    def _unnamed(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """GPM sample buffers are identified by the source of their last sample, not by name."""
        answer, microseconds = self._call((name,), function, args)
        self._keep((name,), True, microseconds)
        return answer

    def _gpm_sample(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        *source, buffer = args
        asked = question(name, tuple(source), self._token)
        answer, microseconds = self._call(asked, function, args)
        self._keep(asked, True, microseconds)
        self._sources[_key(buffer)] = gpm_source(asked)
        return answer

    def _gpm_metrics(self, name: str, function: Callable[..., Any], request: Any) -> Any:
        asked = (name, self._sources.get(_key(request.sample2), ""))
        answer, microseconds = self._call(asked, function, (request,))
        values = {
            str(metric.metricId): [metric.nvmlReturn, encode(metric.value, self._token)]
            for metric in answer.metrics[: answer.numMetrics]
        }
        self._keep(asked, {"metrics": values}, microseconds)
        return answer

    def _token(self, handle: Any) -> str:
        key = _key(handle)
        return self._tokens.setdefault(key, f"@handle{len(self._tokens)}")

    def _since(self, began: float) -> int:
        return round((time.perf_counter() - began) * 1e6)

    def _keep(self, asked: Question, answer: Answer, microseconds: int) -> None:
        with self._lock:
            self.recording.add(asked, answer, microseconds)


def gpm_source(asked: Question) -> str:
    """The source of a GPM sample: `@gpu0`, or `@gpu0/gi3` for a GPU instance."""
    _, handle, *instance = asked
    return f"{handle}/gi{instance[0]}" if instance else str(handle)


def _key(handle: Any) -> Any:
    """The key of a handle: the address of a pointer, the value of a simulator's handle, otherwise the identity."""
    if isinstance(handle, Pointer):
        return address(handle)
    return handle if isinstance(handle, tuple) else id(handle)
