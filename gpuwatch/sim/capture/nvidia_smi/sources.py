"""How one value is found in an nvidia-smi dump: where it is printed in which driver generation, and its unit."""

from collections.abc import Callable
from typing import Any

from gpuwatch.sim.capture.nvidia_smi.node import DumpNode
from gpuwatch.sim.capture.nvidia_smi.values import NoValue

Source = Callable[[DumpNode], Any]
"""A value in NVML's unit from a GPU's (or MIG device's) node; raises NoValue."""


def at(convert: Callable[[str], Any], *paths: str) -> Source:
    """The value at the first of these paths that the dump has; the same value is printed under one of them only."""

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
    """A mask: each place's bits times its printed value; what is N/A is 0, and all N/A is no value."""

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
