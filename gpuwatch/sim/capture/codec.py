"""pynvml's answers as plain data and back.

Scalars and lists stay as they are; everything else becomes a mapping named by its kind: `struct` with `members`,
`object` (pynvml's friendly objects), `bytes` (Latin-1), `union` (hex), `float` (nan, inf), `handle` (its token).
"""

import contextlib
import ctypes
import math
from collections.abc import Callable
from typing import Any

import pynvml

from gpuwatch.sim.capture.data import Answer

Pointer: type[Any] = ctypes.POINTER(ctypes.c_int).__mro__[1]
"""The class all ctypes pointers come from."""


def address(handle: Any) -> int | None:
    """The address in a pointer; None for a null pointer."""
    return ctypes.cast(handle, ctypes.c_void_p).value


def is_output(argument: Any) -> bool:
    """Whether an argument is a struct to be filled through a pointer; handles point to structs without members."""
    return isinstance(argument, Pointer) and hasattr(argument._type_, "_fields_")


def encode(value: Any, token: Callable[[Any], str | None]) -> Answer:
    """Plain data for an answer of pynvml; `token` names a handle."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {"handle": token(value)}  # a simulator's
    for kinds, encoder in ENCODERS:
        if isinstance(value, kinds):
            return encoder(value, token)
    return {"object": {name: encode(item, token) for name, item in vars(value).items()}}


ENCODERS: list[tuple[Any, Callable[[Any, Callable[[Any], str | None]], Answer]]] = [
    (float, lambda value, _: value if math.isfinite(value) else {"float": str(value)}),
    (bytes, lambda value, _: {"bytes": value.decode("latin-1")}),
    (ctypes.Union, lambda value, _: {"union": bytes(value).hex()}),
    (ctypes.Structure, lambda value, token: {"struct": type(value).__name__, "members": members(value, token)}),
    ((list, tuple, ctypes.Array), lambda value, token: [encode(item, token) for item in value]),
    (Pointer, lambda value, token: {"handle": token(value)} if value else None),
    (ctypes._SimpleCData, lambda value, token: encode(value.value, token)),
]


def members(struct: ctypes.Structure, token: Callable[[Any], str | None]) -> dict[str, Any]:
    """The members of a struct by name; bytes reserved for later versions are left out."""
    found = {}
    for name, *_ in _members_of(type(struct)):
        value = object.__getattribute__(struct, name)  # pynvml decodes every char as UTF-8, though some are numbers
        if isinstance(value, bytes):
            with contextlib.suppress(UnicodeDecodeError):
                value = value.decode()
        if not (name.startswith("reserved") and isinstance(value, ctypes.Array)):
            found[name] = encode(value, token)
    return found


def decode(data: Answer, handle: Callable[[str], Any]) -> Any:
    """The answer of pynvml that plain data stand for.

    Raises:
        pynvml.NVMLError: the driver refused, or this pynvml does not know the struct.
    """
    if isinstance(data, list):
        return [decode(item, handle) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = list(data.items())[:1]
    return DECODERS[kind](content, data.get("members"), handle)


def _refuse(code: int, _: Any, __: Callable[[str], Any]) -> Any:
    raise pynvml.NVMLError(code)


def _new_struct(name: str, values: dict[str, Any], handle: Callable[[str], Any]) -> ctypes.Structure:
    found = getattr(pynvml, name, None)
    if not (isinstance(found, type) and issubclass(found, ctypes.Structure)):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    struct = found()
    fill(struct, values, handle)
    return struct


DECODERS: dict[str, Callable[[Any, Any, Callable[[str], Any]], Any]] = {
    "error": _refuse,
    "handle": lambda content, _, handle: handle(content),
    "bytes": lambda content, _, __: content.encode("latin-1", "replace"),
    "float": lambda content, _, __: float(content),
    "object": lambda content, _, handle: pynvml.nvmlFriendlyObject(
        {name: decode(item, handle) for name, item in content.items()}
    ),
    "struct": _new_struct,
}


def fill(struct: ctypes.Structure, values: dict[str, Any], handle: Callable[[str], Any]) -> None:
    """Set the members of a struct from plain data; members this pynvml does not know are skipped."""
    kinds = {name: kind for name, kind, *_ in _members_of(type(struct))}
    for name, value in values.items():
        if name not in kinds or value is None:
            continue
        place = getattr(struct, name)
        if isinstance(value, dict) and "struct" in value:
            fill(place, value["members"], handle)
        elif isinstance(value, dict) and "union" in value:
            raw = bytes.fromhex(value["union"])[: ctypes.sizeof(place)]
            ctypes.memmove(ctypes.addressof(place), raw, len(raw))
        elif isinstance(value, list):
            for index, item in zip(range(len(place)), value, strict=False):
                if isinstance(item, dict) and "struct" in item:
                    fill(place[index], item["members"], handle)
                else:
                    place[index] = decode(item, handle)
        else:
            item = decode(value, handle)
            setattr(struct, name, item.encode() if isinstance(item, str) else item)


def _members_of(kind: type[Any]) -> list[tuple[Any, ...]]:
    return [member for base in reversed(kind.__mro__) for member in base.__dict__.get("_fields_", [])]
