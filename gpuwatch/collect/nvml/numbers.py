"""What NVML's names mean to the running driver, by the table that scripts/nvml-fields makes from NVIDIA's bindings.

Three field ids changed under one name: 251 is the time of a software thermal slowdown to drivers 575.51 to 580.65, and
whether power smoothing is on to those before and after. The constants of the installed bindings are right for one
driver only, so no field is asked by them.
"""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.model.decoding import prepared

Entry = tuple[str, str | None, int | None]
"""First driver, last driver (None: every newer one as well), value; functions and structs have no value."""

TABLE = msgspec.json.decode(
    Path(__file__).with_name("numbers.json").read_bytes(), type=prepared(dict[str, tuple[Entry, ...]])
)
"""Name -> entries, oldest first."""


@cache
def release(driver: str) -> tuple[int, ...]:
    """Branch and release of a driver version, () when it has none: 580.65.06 is (580, 65)."""
    parts = driver.split(".")[:2]
    return tuple(map(int, parts)) if all(part.isascii() and part.isdecimal() for part in parts) else ()


@cache
def field_number(name: str, driver: str) -> int | None:
    """The id of a field, without its prefix NVML_FI_, to a driver version; None when it is not known."""
    running = release(driver)
    for first, last, number in TABLE["NVML_FI_" + name]:
        if last is None or (len(running) == 2 and release(first) <= running <= release(last)):
            return number
    return None


def newest_number(constant: str) -> int | None:
    """The value of a constant to the newest driver that has it; None when the table does not have it."""
    return TABLE[constant][-1][2] if constant in TABLE else None


def field_numbers(nvml: Any, driver: str, names: tuple[str, ...]) -> tuple[int | None, ...]:
    """The ids of several fields; a dump names its fields, so it answers by the newest ids whatever its driver."""
    if getattr(nvml, "fields_by_name", False):
        return tuple(newest_number("NVML_FI_" + name) for name in names)
    return tuple(field_number(name, driver) for name in names)


def first_driver(name: str) -> str:
    """The first driver version whose bindings or library have a function, or a field by its NVML_FI_ constant."""
    return TABLE[name][0][0] if name in TABLE else ""


@cache
def lacks(name: str, driver: str) -> bool:
    """Whether a driver version is known to be older than a function or NVML_FI_ constant."""
    running, first = release(driver), first_driver(name)
    return bool(running and first) and first != OLDEST and running < release(first)


OLDEST = min((entries[0][0] for entries in TABLE.values()), key=release)
"""The oldest bindings compared. Names in them may be older still."""
