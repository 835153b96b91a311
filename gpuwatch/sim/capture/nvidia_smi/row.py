"""What a row of the dump table is: one NVML call, and where in a dump its answer is printed."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpuwatch.sim.capture.data import Answer
from gpuwatch.sim.capture.nvidia_smi.sources import Source


class DumpRow(NamedTuple):
    """One NVML call: its arguments after the handle (strings name constants), what goes into the answer, and how."""

    call: str
    args: tuple[Any, ...]
    sources: tuple[Source, ...]
    build: Callable[..., Answer] = lambda value: value


def struct(name: str, *names: str) -> Callable[..., Answer]:
    """Build an answer that is a pynvml struct with these members."""
    return lambda *values: {"struct": name, "members": dict(zip(names, values, strict=True))}


def call(name: str, source: Source, *args: Any) -> DumpRow:
    """A call that answers one value."""
    return DumpRow(name, args, (source,))


def calls(names: tuple[str, ...], source: Source, *args: Any) -> list[DumpRow]:
    """Several calls with the same answer."""
    return [call(name, source, *args) for name in names]


def field(name: str, source: Source, scope: int = 0) -> DumpRow:
    """A field value by the name of its constant."""
    return DumpRow("nvmlDeviceGetFieldValues", ("NVML_FI_" + name, scope), (source,), field_value)


def field_value(value: int) -> Answer:
    """A field value with the nvmlValueType_t that holds it."""
    return {"type": 3 if value >= 0 else 4, "value": value}


def pair(*values: Any) -> Answer:
    """Calls that answer a list."""
    return list(values)


def reverse(names: dict[int, str]) -> dict[str, int]:
    """Words to codes."""
    return {word: code for code, word in names.items()}
