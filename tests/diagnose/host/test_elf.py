"""One section of an ELF file is found without trusting a byte of it."""

import io
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.host.kernel_modules import elf_section
from tests.diagnose.host.elf_files import elf, module


def test_a_section_is_found_by_name() -> None:
    file = io.BytesIO(elf({".text": b"code", ".modinfo": b"version=570.86.15\0"}))
    assert elf_section(file, ".modinfo") == b"version=570.86.15\0"
    assert elf_section(file, ".text") == b"code"
    assert elf_section(file, ".mod") is None


def test_what_is_no_elf_file_has_no_section() -> None:
    assert elf_section(io.BytesIO(b"\x28\xb5\x2f\xfd compressed"), ".modinfo") is None
    assert elf_section(io.BytesIO(b""), ".modinfo") is None


def test_a_program_of_this_machine_has_its_interpreter_in_a_section() -> None:
    with Path("/bin/sh").open("rb") as file:
        assert (elf_section(file, ".interp") or b"").startswith(b"/lib")


@given(st.data())
def test_damaged_files_give_something_or_nothing(data: st.DataObject) -> None:
    whole = bytearray(module(version="570.86.15", vermagic="6.8.0 SMP"))
    for _ in range(data.draw(st.integers(0, 8))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    found = elf_section(io.BytesIO(bytes(whole[: data.draw(st.integers(0, len(whole)))])), ".modinfo")
    assert found is None or isinstance(found, bytes)
