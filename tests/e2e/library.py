"""Whether this machine has NVIDIA's library: what happens without one cannot be tried beside it."""

import ctypes

import pytest


def _is_there() -> bool:
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


needs_none = pytest.mark.skipif(_is_there(), reason="this machine has libnvidia-ml.so.1, and the agent would find it")
