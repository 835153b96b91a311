"""The place of one printed value in each driver generation, its unit, and the NVML call that it answers."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpuwatch.sim.capture.data import Answer
from gpuwatch.sim.capture.nvidia_smi.parse import DumpNode
from gpuwatch.sim.capture.nvidia_smi.values import NoValue

Source = Callable[[DumpNode], Any]
"""A value in NVML's unit from a GPU's (or MIG device's) node; raises NoValue."""


def at(convert: Callable[[str], Any], *paths: str) -> Source:
    """The value at the first of these paths that the dump has: each dump prints the value under only one of them."""

    def get(gpu: DumpNode) -> Any:
        problem = NoValue()
        for path in paths:
            try:
                return convert(gpu.text(path))
            except NoValue as error:
                problem = problem if gpu.find(path) is None else error
        raise problem

    return get


def total(*sources: Source) -> Source:
    """The sum, when every part is known."""
    return lambda gpu: sum(source(gpu) for source in sources)


def known(*sources: Source) -> Source:
    """The sum of the parts that are known, of which there must be one."""

    def get(gpu: DumpNode) -> Any:
        found, problem = [], NoValue()
        for source in sources:
            try:
                found.append(source(gpu))
            except NoValue as error:
                problem = error
        if not found:
            raise problem
        return sum(found)

    return get


def either(*sources: Source) -> Source:
    """The first that has a value."""

    def get(gpu: DumpNode) -> Any:
        problem: NoValue | None = None
        for source in sources:
            try:
                return source(gpu)
            except NoValue as error:
                problem = problem or error
        raise problem or NoValue()

    return get


def bits(convert: Callable[[str], int], places: dict[int, tuple[str, ...]], required: bool = True) -> Source:
    """A mask: each place's bits times its printed value; N/A counts 0, and all N/A is no value."""

    def get(gpu: DumpNode) -> int:
        mask, known = 0, 0
        problem = NoValue()
        for place, paths in places.items():
            try:
                mask |= place * at(convert, *paths)(gpu)
                known += 1
            except NoValue as error:
                problem = error
        if required and not known:
            raise problem
        return mask

    return get


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
