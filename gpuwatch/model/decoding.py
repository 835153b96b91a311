"""Typed decoding that threads may share.

msgspec learns the fields of a Struct at the first use of its class, in Python code that other threads interrupt. It
publishes the fields before they are complete, because a class may contain itself. Another thread that decodes into the
class at that moment follows null pointers: the interpreter dies of a segmentation fault. This happened in a tuner
whose GPUs, a thread each, read their record for the first time.

Hence one lock guards each first use. Each later use costs one lookup in a set.
"""

import threading
from typing import Any, TypeVar

import msgspec

Kind = TypeVar("Kind")

_LEARNING = threading.Lock()
_LEARNED: set[Any] = set()


def prepared(kind: Kind) -> Kind:
    """`kind`, once msgspec has learned all its fields. Every type that is passed to msgspec must come from here."""
    if kind not in _LEARNED:
        with _LEARNING:
            msgspec.msgpack.Decoder(kind)
            _LEARNED.add(kind)
    return kind
