"""A pynvml-shaped module that answers from a recording, so that the real reader runs on a machine without a GPU."""

import ctypes
import functools
import threading
import time
from collections.abc import Callable
from typing import Any

import pynvml

from gpuwatch.collect.nvml.reads import VALUE_MEMBERS
from gpuwatch.sim.capture.codec import address, decode, fill, is_output
from gpuwatch.sim.capture.data import Answer, Question, Recording
from gpuwatch.sim.capture.record import gpm_source, is_function, question

ALWAYS = ("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlShutdown", "nvmlGpmSampleFree")
NOT_SUPPORTED: Answer = {"error": pynvml.NVML_ERROR_NOT_SUPPORTED}
FIRST_HANDLE = 0x1000
"""The first handle: handles are made-up addresses that are never dereferenced."""


class Cursor:
    """Gives the answers to one question in order; after the last one repeats it, or begins again when looping."""

    def __init__(self, runs: list[tuple[int, Answer]], loop: bool) -> None:
        self._runs, self._loop = runs, loop
        self._run = self._used = 0
        self.over = False

    def next(self) -> Answer:
        """The next answer; `over` turns true when the last one has been given."""
        count, answer = self._runs[self._run]
        self._used += 1
        if self._used >= count:
            last = self._run + 1 == len(self._runs)
            self.over = last and not self._loop
            if not self.over:
                self._run, self._used = (0 if last else self._run + 1), 0
        return answer


class Replay:
    """Functions answer from `recording`, everything else is pynvml's. A call that was not recorded is not supported."""

    def __init__(self, recording: Recording, loop: bool = False, sleep: Callable[[float], None] = time.sleep) -> None:
        self.recording, self._sleep, self.fields_by_name = recording, sleep, recording.header.fields_by_name
        self.asks_all = True
        """Answers come one after the other, and every recorded sample asked for the tier STEADY."""
        self._cursors = {asked: Cursor(runs, loop) for asked, runs in recording.runs.items()}
        self._names = {asked[0] for asked in recording.runs}
        self._lock = threading.Lock()
        self._handles: dict[str, Any] = {}
        self._tokens: dict[int | None, str] = {}
        self._sources: dict[int | None, str] = {}
        self._special: dict[str, Callable[..., Any]] = {
            "nvmlDeviceGetFieldValues": self._field_values,
            "nvmlDeviceGetSamples": self._samples,
            "nvmlEventSetWait": self._event,
            "nvmlEventSetWait_v2": self._event,
            "nvmlGpmSampleAlloc": self._gpm_buffer,
            "nvmlGpmSampleGet": self._gpm_sample,
            "nvmlGpmMigSampleGet": self._gpm_sample,
            "nvmlGpmMetricsGet": self._gpm_metrics,
        }

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            member = getattr(pynvml, name)
            if not is_function(name, member):
                return member
        return functools.partial(self._special.get(name, self._plain), name)

    def _answer(self, asked: Question, missing: Answer = NOT_SUPPORTED) -> Answer:
        with self._lock:
            cursor = self._cursors.get(asked)
            return cursor.next() if cursor else missing

    def _plain(self, name: str, *args: Any) -> Any:
        if name in ALWAYS:
            return None
        answer = self._answer(question(name, args, self._token))
        if isinstance(answer, dict) and "fills" in answer:
            outputs = (argument.contents for argument in args if is_output(argument))
            for struct, values in zip(outputs, answer["fills"], strict=False):
                fill(struct, {key: value for key, value in values.items() if key != "version"}, self._handle)
            return pynvml.NVML_SUCCESS
        return decode(answer, self._handle)

    def _field_values(self, name: str, handle: Any, fields: list[Any]) -> Any:
        asked = question(name, (handle,), self._token)
        decode(self._answer(asked, missing=True), self._handle)
        values = (pynvml.c_nvmlFieldValue_t * len(fields))()
        for slot, field in zip(values, fields, strict=True):
            slot.fieldId, slot.scopeId = field if isinstance(field, tuple) else (field, 0)
            answer = self._answer((*asked, slot.fieldId, slot.scopeId))
            if "error" in answer:
                slot.nvmlReturn = answer["error"]
            else:
                slot.valueType = answer["type"]
                setattr(slot.value, VALUE_MEMBERS[answer["type"]], answer["value"])
        return values

    def _samples(self, name: str, *args: Any) -> tuple[int, list[Any]]:
        answer = self._answer(question(name, args, self._token))
        if "error" in answer:
            raise pynvml.NVMLError(answer["error"])
        samples = []
        for at, value in answer["samples"]:
            sample = pynvml.c_nvmlSample_t(timeStamp=at)
            setattr(sample.sampleValue, VALUE_MEMBERS[answer["type"]], value)
            samples.append(sample)
        return answer["type"], samples

    def _event(self, name: str, event_set: Any, timeout_ms: int) -> Any:
        """Events come once, in order, between recorded time-outs; after the last one there are only time-outs."""
        asked = question(name, (event_set, timeout_ms), self._token)
        with self._lock:
            cursor = self._cursors.get(asked)
            answer = cursor.next() if cursor and not cursor.over else {"error": pynvml.NVML_ERROR_TIMEOUT}
        if answer.get("error") == pynvml.NVML_ERROR_TIMEOUT:
            self._sleep(timeout_ms / 1e3)
        return decode(answer, self._handle)

    def _gpm_buffer(self, name: str) -> Any:
        decode(self._answer((name,)), self._handle)
        with self._lock:
            return self._new_handle(f"@sample{len(self._tokens)}", pynvml.c_nvmlGpmSample_t)

    def _gpm_sample(self, name: str, *args: Any) -> Any:
        *source, buffer = args
        asked = question(name, tuple(source), self._token)
        decode(self._answer(asked), self._handle)
        self._sources[address(buffer)] = gpm_source(asked)
        return buffer

    def _gpm_metrics(self, name: str, request: Any) -> Any:
        answer = self._answer((name, self._sources.get(address(request.sample2), "")))
        if "error" in answer:
            raise pynvml.NVMLError(answer["error"])
        for metric in request.metrics[: request.numMetrics]:
            code, value = answer["metrics"].get(str(metric.metricId), (pynvml.NVML_ERROR_NOT_SUPPORTED, 0.0))
            metric.nvmlReturn, metric.value = code, decode(value, self._handle)
        return request

    def _handle(self, token: str) -> Any:
        with self._lock:
            kind = pynvml.c_nvmlEventSet_t if token.startswith("@events") else pynvml.c_nvmlDevice_t
            return self._handles.get(token) or self._new_handle(token, kind)

    def _new_handle(self, token: str, kind: Any) -> Any:
        place = FIRST_HANDLE + 8 * len(self._tokens)
        self._tokens[place] = token
        self._handles[token] = ctypes.cast(ctypes.c_void_p(place), kind)
        return self._handles[token]

    def _token(self, handle: Any) -> str:
        return self._tokens.get(address(handle), "@unknown")
