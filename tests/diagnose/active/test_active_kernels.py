"""The kernels of the active checks: NVIDIA's assembler takes their text, and it does what it should; the prototypes."""

import ctypes
import importlib.util
import re
import struct
import subprocess
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.active.kernels import NOTHING_WRONG, PARAMETERS, PTX, pattern
from gpuwatch.diagnose.active.libcuda import PROTOTYPES
from tests.diagnose.ptx import Machine, entries
from tests.fakes.libcuda.library import header

ENTRIES = entries(PTX)
TYPES = {".u32": ctypes.c_uint32, ".u64": ctypes.c_uint64}
U32 = st.integers(0, 2**32 - 1)


def ptxas() -> Path:
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or ()) if spec else ():
        for found in Path(root).glob("*/bin/ptxas"):
            return found
    raise AssertionError("ptxas is not installed; pip install nvidia-cuda-nvcc-cu12")


@pytest.mark.parametrize("architecture", ["sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90"])
def test_nvidias_assembler_takes_the_text(tmp_path, architecture):
    (tmp_path / "kernels.ptx").write_text(PTX)
    command = (ptxas(), "-arch", architecture, "--warning-as-error", "-o", tmp_path / "out", tmp_path / "kernels.ptx")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_table_says_what_the_text_takes():
    said = {name: tuple(TYPES[kind] for kind, _ in entry.parameters) for name, entry in ENTRIES.items()}
    assert said == PARAMETERS


def test_vector_add_does_each_element_once_and_no_more():
    n, machine = 7, Machine(256)
    a, b, untouched = range(n), range(100, 100 + n), 0xDEADBEEF
    struct.pack_into(f"<{n}f", machine.memory, 0, *a)
    struct.pack_into(f"<{n}f", machine.memory, 64, *b)
    struct.pack_into("<I", machine.memory, 128 + 4 * n, untouched)
    machine.launch(ENTRIES["vector_add"], blocks=2, threads=4, a=0, b=64, sum=128, n=n)
    assert struct.unpack_from(f"<{n}f", machine.memory, 128) == tuple(x + y for x, y in zip(a, b, strict=True))
    assert struct.unpack_from("<I", machine.memory, 128 + 4 * n) == (untouched,)


@given(seed=U32, flip=st.sampled_from([0, 0xFFFFFFFF]))
def test_the_pattern_is_the_one_that_is_expected(seed, flip):
    n, machine = 6, Machine(32)
    machine.launch(ENTRIES["pattern_write"], blocks=2, threads=4, words=0, n=n, seed=seed, flip=flip)
    assert struct.unpack_from("<8I", machine.memory) == (*(pattern(i, seed, flip) for i in range(n)), 0, 0)


@given(seed=U32, wrong=st.sets(st.integers(0, 9)), bit=st.integers(0, 31))
def test_every_wrong_word_is_counted_and_the_first_is_reported(seed, wrong, bit):
    n, machine = 10, Machine(64)
    machine.launch(ENTRIES["pattern_write"], blocks=1, threads=12, words=0, n=n, seed=seed, flip=0)
    for index in wrong:
        (word,) = struct.unpack_from("<I", machine.memory, index * 4)
        struct.pack_into("<I", machine.memory, index * 4, word ^ 1 << bit)
    struct.pack_into("<2I", machine.memory, 48, 0, NOTHING_WRONG)
    machine.launch(ENTRIES["pattern_verify"], blocks=1, threads=12, words=0, n=n, seed=seed, flip=0, found=48)
    assert struct.unpack_from("<2I", machine.memory, 48) == (len(wrong), min(wrong, default=NOTHING_WRONG))


def test_neighbours_and_aliases_have_different_words():
    """A cell that answers in place of another one, a power of two away, must not hold the same."""
    words = [pattern(i, 0x5EED1234, 0) for i in (0, *(1 << shift for shift in range(28)))]
    assert len(set(words)) == len(words)


C_TYPES = {
    "unsigned int": ctypes.c_uint,
    "int": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "CUdevice": ctypes.c_int,
    "CUresult": ctypes.c_int,
    "CUdeviceptr": ctypes.c_uint64,
    "CUjit_option": ctypes.c_int,
    "CUuuid": "CUuuid",
    "float": ctypes.c_float,
    "char": ctypes.c_char,
    "void": None,
}
HANDLES = {"CUcontext", "CUmodule", "CUfunction", "CUstream", "CUevent"}


@cache
def declared() -> dict[str, str]:
    """Function -> parameters, as cuda.h spells them for what drivers export."""
    command = ("cc", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", "-x", "c", str(header()))
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"\bCUresult\s+(cu\w+)\s*\(([^)]*)\)\s*;", text))


def kind(parameter: str) -> tuple[str, int]:
    """Base type and how many times it is pointed to."""
    words = parameter.replace("const", "").replace("*", " * ").split()
    names = [word for word in words if word != "*"]
    base = " ".join(names[:2]) if names[0] == "unsigned" else names[0]
    return base, words.count("*") + (base in HANDLES)


def width(given: object) -> tuple[object, int]:
    """The same of a ctypes type; void pointers are pointers to None."""
    if given is ctypes.c_void_p:
        return None, 1
    if given is ctypes.c_char_p:
        return ctypes.c_char, 1
    inner = getattr(given, "_type_", None)
    if isinstance(inner, type):
        base, depth = width(inner)
        return base, depth + 1
    return (given.__name__ if given.__name__ == "CUuuid" else given), 0


@pytest.mark.parametrize("name", PROTOTYPES)
def test_prototypes_are_those_of_the_header(name):
    parameters = [part.strip() for part in declared()[name].split(",") if part.strip() not in ("", "void")]
    assert len(parameters) == len(PROTOTYPES[name])
    for parameter, given_type in zip(parameters, PROTOTYPES[name], strict=True):
        base, depth = kind(parameter)
        expected = None if base in HANDLES else C_TYPES[base]
        assert width(given_type) == (expected, depth), parameter
