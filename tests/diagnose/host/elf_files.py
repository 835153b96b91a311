"""Small ELF files with one section that matters, as a kernel module has it."""

import struct

SIGNED = b"~Module signature appended~\n"


def module(*, signed: bool = False, **facts: str) -> bytes:
    """A kernel module whose .modinfo says `name=value`."""
    info = b"".join(f"{name}={value}".encode() + b"\0" for name, value in facts.items())
    return elf({".text": b"\x90" * 16, ".modinfo": info}) + (b"PKCS#7" + SIGNED if signed else b"")


def elf(sections: dict[str, bytes]) -> bytes:
    """A 64-bit little-endian ELF file: header, contents, names, table of sections."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in (*sections, ".shstrtab"))
    contents = [*sections.values(), names]
    body, rows = b"", [bytes(64)]
    for name, content in zip((*sections, ".shstrtab"), contents, strict=True):
        at = names.index(b"\0" + name.encode() + b"\0") + 1
        rows.append(struct.pack("<II16xQQ24x", at, 1, 64 + len(body), len(content)))
        body += content
    table = 64 + len(body)
    header = struct.pack("<16s24xQ4xHHHHHH", b"\x7fELF\x02\x01\x01", table, 64, 0, 0, 64, len(rows), len(rows) - 1)
    return header + body + b"".join(rows)
