"""Typed decoding that threads may share.

msgspec learns the fields of a Struct at the first use of its class, in Python code that other threads interrupt, and
publishes what it has before it is whole, as a class may contain itself. Another thread that decodes into the class at
that moment follows null pointers: the interpreter dies of a segmentation fault. It was seen in a tuner whose GPUs, a
thread each, read their record for the first time.

Hence one lock around each first use. Afterwards it costs a look into a set.
"""

import threading
from typing import Any, TypeVar

import msgspec

Kind = TypeVar("Kind")

_LEARNING = threading.Lock()
_LEARNED: set[Any] = set()


def prepared(kind: Kind) -> Kind:
    """`kind`, of which msgspec has learned all by now: every type that is handed to msgspec passes through here."""
    if kind not in _LEARNED:
        with _LEARNING:
            msgspec.msgpack.Decoder(kind)
            _LEARNED.add(kind)
    return kind
