"""One section of an ELF file, without reading the rest: a kernel module says in `.modinfo` what it is."""

import struct
from typing import BinaryIO

_HEADER = struct.Struct("<16s24xQ10xHHH")  # identification, section table's offset, entry size, entries, names
_SECTION = struct.Struct("<I20xQQ")  # name, offset, size; the rest of an entry is not needed
_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, little-endian: all machines NVIDIA's driver runs on
_LONGEST = 1_048_576
_MOST_SECTIONS = 16_384


def section(file: BinaryIO, name: str) -> bytes | None:
    """Contents of the first section of that name; None where there is none, or this is no such ELF file.

    Raises:
        OSError: the file cannot be read.
    """
    header = _at(file, 0, _HEADER.size)
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        return None
    _, table, entry, count, names_at = _HEADER.unpack(header)
    if entry < _SECTION.size or not names_at < count <= _MOST_SECTIONS:
        return None
    entries = _at(file, table, entry * count)
    if len(entries) < entry * count:
        return None
    rows = [_SECTION.unpack_from(entries, entry * number) for number in range(count)]
    names = _at(file, *rows[names_at][1:])
    wanted = name.encode() + b"\0"
    found = next((row for row in rows if names[row[0] : row[0] + len(wanted)] == wanted), None)
    return None if found is None else _at(file, found[1], found[2])


def _at(file: BinaryIO, offset: int, size: int) -> bytes:
    if offset >= 1 << 62 or size > _LONGEST:
        return b""
    file.seek(offset)
    return file.read(size)
