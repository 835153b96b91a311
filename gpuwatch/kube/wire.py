"""What all that is read from the API server has in common: JSON in camel case, of which most is not looked at."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from gpuwatch.kube.errors import Call, Garbled

GPU_RESOURCES = "nvidia.com/"


class Wire(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what is on the wire. Unknown members are ignored."""


class Resources(Wire, frozen=True):
    """What a container asks for."""

    requests: dict[str, str | int] | None = None
    limits: dict[str, str | int] | None = None

    @property
    def asked(self) -> Mapping[str, str | int]:
        """By the resource's name; a limit counts where there is one."""
        return {**(self.requests or {}), **(self.limits or {})}


class Container(Wire, frozen=True):
    """As far as devices go."""

    resources: Resources = Resources()


AnyWire = TypeVar("AnyWire", bound=Wire)


def decode(call: Call, body: bytes, kind: type[AnyWire]) -> AnyWire:
    """An answer. Raises Garbled."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise garbled(call, str(error)) from error


def garbled(call: Call, why: str) -> Garbled:
    """The error for an answer that makes no sense."""
    return Garbled(call, f"the answer cannot be read: {why}", "does something between us and the API server answer?")
