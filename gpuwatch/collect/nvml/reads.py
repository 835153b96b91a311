"""The three ways in which NVML gives readings of one handle.

FIELDS: field values in batches and single calls; older symbols where newer ones are missing. Sample buffers: mean and
maximum of the driver's own samples between two reads, so that a short peak is not missed. GPM: activity ratios from
pairs of hardware counter samples (Hopper and newer), of whole GPUs and of MIG instances.
"""

from collections.abc import Collection, Sequence
from functools import cache
from typing import Any

from gpuwatch.collect.nvml.fields import FieldId, FieldRow, NvmlCall, Tier, tiers_due
from gpuwatch.collect.nvml.library import Failure, Nvml, NvmlFailure, ask, ask_optional, failure, text
from gpuwatch.collect.nvml.numbers import field_numbers, first_driver, lacks
from gpuwatch.model.snapshot import Activity

VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""nvmlValueType_t -> member of the nvmlValue_t union (nvml.h)."""

BATCH = 128
"""Field values per driver call: older drivers refuse more."""

ALL_TIERS = tiers_due(0)

AGREE = 0.2
"""Share by which a field may differ from the call that it replaces: power changes between the two reads."""


_member = object.__getattribute__
"""A member of a struct without strings. pynvml's structs look at each member for a string to decode, which costs as
much as all else of a field.
"""

Answers = dict[tuple[int, int], float | NvmlFailure]
"""(field id, scope id) -> value or failure."""


def field_values(nvml: Nvml, handle: Any, wanted: Sequence[tuple[int, int]]) -> Answers:
    """Read (field id, scope id) pairs in batches; each has its own value or its own failure.

    Raises:
        NvmlFailure: the call as a whole failed.
    """
    values: Answers = {}
    for start in range(0, len(wanted), BATCH):
        batch = wanted[start : start + BATCH]
        for key, answer in zip(batch, ask(nvml, "nvmlDeviceGetFieldValues", handle, batch), strict=True):
            if refused := _member(answer, "nvmlReturn"):
                values[key] = failure(refused)
            else:
                values[key] = getattr(_member(answer, "value"), VALUE_MEMBERS[_member(answer, "valueType")])
    return values


class FieldReader:
    """The readings of one GPU handle. It keeps rarely read values, and what this GPU and driver do not offer.

    A field is read in place of a call only after both have had the same value. After `read`, `errors` maps the paths
    whose read failed this time to NVML's words; `unsupported` lists the paths for which no way is left,
    `why_absent` the cause where it is the driver. All are about this handle and are valid until the next driver
    change.
    """

    def __init__(self, nvml: Nvml, handle: Any, fields: tuple[FieldRow, ...]) -> None:
        self._nvml, self._handle = nvml, handle
        self._driver = text(ask_optional(nvml, "nvmlSystemGetDriverVersion") or "") or ""
        numbers = {
            way: field_numbers(nvml, self._driver, way.names)
            for field in fields
            for way in field.ways
            if isinstance(way, FieldId)
        }
        self._keys = {way: [(number, 0) for number in found if number is not None] for way, found in numbers.items()}
        self._unknown = {way for way, found in numbers.items() if None in found}
        self._ways = {field: [way for way in field.ways if self._is_known(way)] for field in fields}
        self._arguments = {
            way: tuple(getattr(nvml, a) if isinstance(a, str) else a for a in way.args)
            for ways in self._ways.values()
            for way in ways
            if isinstance(way, NvmlCall)
        }
        self._values: dict[str, Any] = {}
        self._asked: set[FieldRow] = set()
        self._failures: list[NvmlFailure] = []
        self.unsupported: list[str] = []
        self.why_absent: dict[str, str] = {}
        self.errors: dict[str, str] = {}
        self.batch: Answers = {}
        self._verified: set[FieldId] = set()
        self._batch_failed = False  # as a whole, and not because it is unsupported
        for field, ways in self._ways.items():
            if not ways:
                self._give_up(field)

    def read(self, tiers: Collection[Tier] = ALL_TIERS, also: Sequence[tuple[int, int]] = ()) -> dict[str, Any]:
        """Values by path: those of `tiers` as of now, the others as of their last read. `also`: (field id, scope id) of
        others, to be read in the same call; their answers are in `batch`.

        Raises:
            NvmlFailure: of kind LOST or DRIVER_GONE, or the last one where not a single field answered; every other
                failure is kept in `errors`.
        """
        self.errors, self._failures = {}, []
        due = [
            field for field, ways in self._ways.items() if ways and (field not in self._asked or field.tier in tiers)
        ]
        wanted = [key for field in due if isinstance(way := self._ways[field][0], FieldId) for key in self._keys[way]]
        self._batch_failed = False
        try:
            self.batch = field_values(self._nvml, self._handle, [*wanted, *also]) if wanted else {}
        except NvmlFailure as error:
            if error.is_gone:
                raise
            self._batch_failed = error.kind is not Failure.UNSUPPORTED
            self.batch = dict.fromkeys(wanted, error)
        answered = sum(self._read_field(field, self.batch) for field in due)
        if self._failures and not answered:
            raise self._failures[-1]
        return self._values

    def _read_field(self, field: FieldRow, batch: Answers) -> bool:
        """Whether the field answered. A field that failed is due again at the next sample, whatever its tier."""
        ways, failed = self._ways[field], None
        for way in tuple(ways):
            try:
                if isinstance(way, NvmlCall):
                    values = way.get(ask(self._nvml, way.name, self._handle, *self._arguments[way]))
                else:
                    values = way.get(*self._field_answers(way, batch))
                    if way not in self._verified and not self._verify(field, way, values):
                        ways.remove(way)
                        continue
            except NvmlFailure as error:
                if error.is_gone:
                    raise
                if error.kind is Failure.UNSUPPORTED:
                    ways.remove(way)
                    continue
                failed = error
                if isinstance(way, FieldId) and self._batch_failed:
                    continue  # this field is not known yet; a call may answer meanwhile
                break
            self._asked.add(field)
            self._values.update(zip(field.paths, values if len(field.paths) > 1 else (values,), strict=True))
            return True
        self._asked.discard(field)
        for path in field.paths:
            self._values.pop(path, None)
        if failed is not None:
            self._failures.append(failed)
            self.errors.update(dict.fromkeys(field.paths, str(failed)))
        else:
            self._give_up(field)
        return False

    def _verify(self, field: FieldRow, way: FieldId, value: Any) -> bool:
        """Whether a field has the value of the call that it replaces. Drivers answer 0 to fields that they do not have
        (DEV_MEMORY_TEMP), and some fields changed their meaning. Where the call is not supported, only 0 is refused.

        Raises:
            NvmlFailure: the call failed for another reason; the field is compared at the next sample.
        """
        call = next((other for other in self._ways[field] if isinstance(other, NvmlCall)), None)
        if call is not None and value is not None:
            try:
                expected = call.get(ask(self._nvml, call.name, self._handle, *self._arguments[call]))
            except NvmlFailure as error:
                if error.kind is not Failure.UNSUPPORTED:
                    raise
                expected = value or None
            if expected is None or abs(value - expected) > AGREE * max(abs(value), abs(expected)):
                return False
        self._verified.add(way)
        return True

    def _field_answers(self, way: FieldId, batch: Answers) -> list[float | None]:
        keys = self._keys[way]
        if keys[0] not in batch:
            batch = field_values(self._nvml, self._handle, keys)
        answers = [batch[key] for key in keys]
        failures = [answer for answer in answers if isinstance(answer, NvmlFailure)]
        for error in failures:
            if len(failures) == len(keys) or error.kind is not Failure.UNSUPPORTED:
                raise error
        return [None if isinstance(answer, NvmlFailure) else answer for answer in answers]

    def _is_known(self, way: NvmlCall | FieldId) -> bool:
        """Whether the bindings have the call's constants, and the driver the field's ids."""
        if isinstance(way, FieldId):
            return way not in self._unknown
        return all(hasattr(self._nvml, argument) for argument in way.args if isinstance(argument, str))

    def _give_up(self, field: FieldRow) -> None:
        self.unsupported.extend(field.paths)
        names = ["NVML_FI_" + way.name if isinstance(way, FieldId) else way.name for way in field.ways]
        driver = f"driver {self._driver}" if self._driver else "a driver of unknown version"
        if all(lacks(name, self._driver) for name in names):
            why = f"{driver} does not have {names[0]}, known from {first_driver(names[0])} on"
        elif any(way in self._unknown for way in field.ways):
            why = f"the number of {names[0]} is not known for {driver}"
        else:
            return
        self.why_absent.update(dict.fromkeys(field.paths, why))


@cache
def _split(path: str) -> tuple[list[str], str]:
    *parents, leaf = path.split(".")
    return parents, leaf


def nest(values: dict[str, Any]) -> dict[str, Any]:
    """`{"power.average": 70.0}` to `{"power": {"average": 70.0}}`, leaving out what is unknown."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        if value is None:
            continue
        parents, leaf = _split(path)
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        branch[leaf] = value
    return tree


BUFFERS = {
    "power": ("NVML_TOTAL_POWER_SAMPLES", 1e-3, ("power.mean", "power.max")),
    "utilization": ("NVML_GPU_UTILIZATION_SAMPLES", 1e-2, ("utilization.gpu_mean", "utilization.gpu_max")),
}
"""Buffer -> sampling type, scale, paths of (mean, maximum)."""


class SampleReader:
    """Reads each buffer from the newest sample read so far; the first read only finds its time."""

    def __init__(self, nvml: Nvml, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle
        self._buffers = dict(BUFFERS)
        self._last_seen: dict[str, int] = {}

    def read(self) -> dict[str, float]:
        """Values by FIELDS path; a path is missing when no sample came since the previous read."""
        values: dict[str, float] = {}
        for name, (constant, scale, paths) in list(self._buffers.items()):
            try:
                kind, samples = ask(
                    self._nvml,
                    "nvmlDeviceGetSamples",
                    self._handle,
                    getattr(self._nvml, constant),
                    self._last_seen.get(name, 0),
                )
            except NvmlFailure as error:
                if error.is_gone:
                    raise
                if error.kind in (Failure.UNSUPPORTED, Failure.PERMISSION):
                    del self._buffers[name]
                continue
            seen = self._last_seen.get(name)
            fresh = [
                getattr(s.sampleValue, VALUE_MEMBERS[kind]) * scale
                for s in samples
                if seen is None or s.timeStamp > seen
            ]
            if samples:
                self._last_seen[name] = max(int(s.timeStamp) for s in samples)
            if fresh and seen is not None:
                values.update(zip(paths, (sum(fresh) / len(fresh), max(fresh)), strict=True))
        return values


GPM_METRICS = {
    "graphics": "NVML_GPM_METRIC_GRAPHICS_UTIL",
    "sm": "NVML_GPM_METRIC_SM_UTIL",
    "sm_occupancy": "NVML_GPM_METRIC_SM_OCCUPANCY",
    "integer": "NVML_GPM_METRIC_INTEGER_UTIL",
    "tensor": "NVML_GPM_METRIC_ANY_TENSOR_UTIL",
    "dram": "NVML_GPM_METRIC_DRAM_BW_UTIL",
    "fp64": "NVML_GPM_METRIC_FP64_UTIL",
    "fp32": "NVML_GPM_METRIC_FP32_UTIL",
    "fp16": "NVML_GPM_METRIC_FP16_UTIL",
}
"""Members of `Activity` -> GPM metric, all percentages."""

GPM_MIN_WINDOW = 0.1
"""Seconds: NVIDIA asks for at least 100 ms between the two samples of a pair."""


def has_gpm(nvml: Nvml, handle: Any) -> bool:
    """Whether the GPU has GPM (nvmlGpmQueryDeviceSupport); False also on drivers without the call."""
    answer = ask_optional(nvml, "nvmlGpmQueryDeviceSupport", handle)
    return answer is not None and bool(answer.isSupportedDevice)


class GpmSampler:
    """The two newest counter samples of one GPU (`gi` None) or of one of its GPU instances."""

    def __init__(self, nvml: Nvml, handle: Any, gi: int | None = None, request: Any = None) -> None:
        self._nvml, self._handle, self._gi = nvml, handle, gi
        if request is None:  # made once: setting its metrics costs more than reading them
            request = nvml.c_nvmlGpmMetricsGet_t()
            request.version = nvml.NVML_GPM_METRICS_GET_VERSION
            request.numMetrics = len(GPM_METRICS)
            for slot, constant in enumerate(GPM_METRICS.values()):
                request.metrics[slot].metricId = getattr(nvml, constant)
        self._request = request
        self._older, self._newer = ask(nvml, "nvmlGpmSampleAlloc"), ask(nvml, "nvmlGpmSampleAlloc")
        self._taken: float | None = None
        self._last = Activity()

    def of_instance(self, gi: int) -> "GpmSampler":
        """A sampler of a GPU instance, read by the same thread: the two share the request, of 19 KB."""
        return GpmSampler(self._nvml, self._handle, gi, self._request)

    def read(self, now: float) -> Activity:
        """Activity since the previous read; empty at the first one, and unchanged within GPM_MIN_WINDOW.

        Raises:
            NvmlFailure: the sample was refused, for example for lack of permission.
        """
        if self._taken is not None and now - self._taken < GPM_MIN_WINDOW:
            return self._last
        if self._gi is None:
            ask(self._nvml, "nvmlGpmSampleGet", self._handle, self._newer)
        else:
            ask(self._nvml, "nvmlGpmMigSampleGet", self._handle, self._gi, self._newer)
        before, self._last = self._taken, Activity()
        # before the comparison, which may fail: after an instance was replaced, only the next pair is of one instance
        self._older, self._newer, self._taken = self._newer, self._older, now
        if before is not None:
            # swapped above: `_older` is the newest sample by now
            self._request.sample1, self._request.sample2 = self._newer, self._older
            answer = ask(self._nvml, "nvmlGpmMetricsGet", self._request)
            ratios = {
                name: value / 100
                for name, metric in zip(GPM_METRICS, answer.metrics, strict=False)
                # a metric without data comes back as NaN, which compares unequal to itself
                if not _member(metric, "nvmlReturn") and (value := _member(metric, "value")) == value
            }
            self._last = Activity(**ratios, window_seconds=now - before)
        return self._last

    def close(self) -> None:
        """Free both samples."""
        for sample in (self._older, self._newer):
            ask(self._nvml, "nvmlGpmSampleFree", sample)
