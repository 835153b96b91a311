"""Since which driver branch each function and field exists, as the readers' own table says."""

from gpuwatch.collect.nvml.fields import FIELDS, IDENTITY, FieldId, NvmlCall

_WAYS = [way for field in (*IDENTITY, *FIELDS) for way in field.ways if way.since]

SINCE = {way.name: way.since for way in _WAYS if isinstance(way, NvmlCall) and way.name != "nvmlDeviceGetMemoryInfo"}
"""Function -> first branch; what is not here is as old as every driver."""

FIELD_SINCE = {way.name: way.since for way in _WAYS if isinstance(way, FieldId)}
"""Field (without NVML_FI_) -> first branch."""
