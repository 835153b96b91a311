"""Writes one block of Prometheus' database (index format 2, XOR chunks), many series to the same chunks.

promtool makes blocks of text, 300 million samples of it would take an hour. Here a series of the simulated node is
encoded once, and its counterparts on other nodes have index entries that name the same chunks.
"""

import ctypes
import json
import struct
import subprocess
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from pathlib import Path

CHUNK_SAMPLES = 120
ULID = "01F" + 23 * "0"
"""What the block is called."""
STALE = struct.unpack(">d", struct.pack(">Q", 0x7FF0000000000002))[0]
"""What Prometheus writes where a series ends."""

Pair = tuple[str, str]
Labels = tuple[Pair, ...]
"""Sorted by name."""

CRC = """
#include <stddef.h>
static unsigned table[256];
unsigned crc32c(const unsigned char *p, size_t n) {
    if (!table[1])
        for (unsigned i = 0, c; i < 256; table[i++] = c)
            for (int k = (c = i, 0); k < 8; k++) c = c & 1 ? c >> 1 ^ 0x82F63B78u : c >> 1;
    unsigned c = ~0u;
    while (n--) c = table[(c ^ *p++) & 255] ^ c >> 8;
    return ~c;
}
"""


def uvarint(number: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


def varint(number: int) -> bytes:
    """Signed: zigzag."""
    return uvarint(number << 1 if number >= 0 else (-number << 1) - 1)


def xor_chunk(times: range, values: Sequence[float]) -> bytes:
    """Samples at even distances, in milliseconds."""
    words = struct.unpack(f">{len(values)}Q", struct.pack(f">{len(values)}d", *values))
    head = struct.pack(">H", len(words)) + varint(times[0]) + struct.pack(">Q", words[0])
    bits, window = [], (0, 0)
    for number, (before, now) in enumerate(pairwise(words)):
        bits.append("0" if number else "")  # the distance is as before
        changed = before ^ now
        if not changed:
            bits.append("0")
            continue
        leading, trailing = min(64 - changed.bit_length(), 31), (changed & -changed).bit_length() - 1
        if window != (0, 0) and leading >= window[0] and trailing >= window[1]:
            width = 64 - sum(window)
            bits.append(f"10{changed >> window[1]:0{width}b}")
        else:
            window, width = (leading, trailing), 64 - leading - trailing
            bits.append(f"11{leading:05b}{width & 63:06b}{changed >> trailing:0{width}b}")
    text = "".join(bits)
    text += "0" * (-len(text) % 8)
    step = uvarint(times.step) if len(words) > 1 else b""
    return head + step + (int(text, 2).to_bytes(len(text) // 8, "big") if text else b"")


class BlockWriter:
    """One block in the storage path `place`. First all `chunks`, then `close` with the series that have them."""

    def __init__(self, place: Path) -> None:
        self._place = place / ULID
        (self._place / "chunks").mkdir(parents=True)
        source, library = self._place / "crc.c", self._place / "crc.so"
        source.write_text(CRC)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
        self._crc32c = ctypes.CDLL(str(library)).crc32c
        self._crc32c.argtypes, self._crc32c.restype = (ctypes.c_char_p, ctypes.c_size_t), ctypes.c_uint
        self._chunks = (self._place / "chunks" / "000001").open("wb")
        self._chunks.write(struct.pack(">IBxxx", 0x85BD40DD, 1))
        self._begin, self._end, self._counts = 1 << 62, 0, {"numSeries": 0, "numChunks": 0, "numSamples": 0}
        self._samples: dict[bytes, tuple[int, int]] = {b"\0": (0, 0)}

    def _checked(self, data: bytes) -> bytes:
        return struct.pack(">I", self._crc32c(data, len(data)))

    def chunks(self, times: range, values: Sequence[float | None]) -> bytes:
        """What a series' index entry says of these samples; None: there is none. Times are in milliseconds."""
        entries, last, before = [], (0, 0), 0
        count = 0
        for begin, part in _runs(values):
            at = times[begin : begin + len(part)]
            data = b"\1" + xor_chunk(at, part)
            offset = self._chunks.tell()
            self._chunks.write(uvarint(len(data) - 1) + data + self._checked(data))
            first = varint(at[0]) if not entries else uvarint(at[0] - last[1])
            reference = uvarint(offset) if not entries else varint(offset - before)
            entries.append(first + uvarint(at[-1] - at[0]) + reference)
            last, before, count = (at[0], at[-1]), offset, count + len(part)
            self._begin, self._end = min(self._begin, at[0]), max(self._end, at[-1])
        entry = uvarint(len(entries)) + b"".join(entries)
        self._samples[entry] = (len(entries), count)
        return entry

    def close(self, series: Iterable[tuple[Labels, bytes]]) -> dict[str, int]:
        """Write the index; how many series, chunks and samples there are."""
        self._chunks.close()
        known: dict[Pair, int] = {}
        rows = [(tuple(known.setdefault(pair, len(known)) for pair in labels), entry) for labels, entry in series]
        with (self._place / "index").open("wb") as file:
            self._index(file, rows, sorted(known), known)
        meta = {"ulid": self._place.name, "minTime": self._begin, "maxTime": self._end + 1, "version": 1}
        compaction = {"level": 1, "sources": [self._place.name]}
        (self._place / "meta.json").write_text(json.dumps(meta | {"stats": self._counts, "compaction": compaction}))
        return self._counts

    def _index(self, file, rows, pairs: list[Pair], known: dict[Pair, int]) -> None:  # type: ignore[no-untyped-def]
        def section(data: bytes) -> int:
            at = file.tell()
            file.write(struct.pack(">I", len(data)) + data + self._checked(data))
            return at

        file.write(struct.pack(">IB", 0xBAAAD700, 2))
        symbols = sorted({text.encode() for pair in pairs for text in pair} | {b""})
        place = {symbol: uvarint(number) for number, symbol in enumerate(symbols)}
        spelt = b"".join(uvarint(len(symbol)) + symbol for symbol in symbols)
        table = [section(struct.pack(">I", len(symbols)) + spelt)]
        file.write(bytes(-file.tell() % 16))
        table.append(file.tell())
        postings = self._series(file, rows, pairs, known, place)
        empty = bytes(4)
        table += [file.tell(), section(empty)]
        offsets, begin = [], 0
        for (name, value), references in postings:
            file.write(bytes(-file.tell() % 4))
            begin = begin or file.tell()
            references.byteswap()
            at = section(struct.pack(">I", len(references)) + references.tobytes())
            keys = b"".join(uvarint(len(text)) + text for text in (name.encode(), value.encode()))
            offsets.append(b"\2" + keys + uvarint(at))
        table += [begin, section(struct.pack(">I", len(offsets)) + b"".join(offsets))]
        toc = struct.pack(">6Q", *table)
        file.write(toc + self._checked(toc))

    def _series(self, file, rows, pairs, known, place) -> list[tuple[Pair, array]]:  # type: ignore[no-untyped-def]
        """Write series in the order of their labels; the postings of each pair, the first those of all series."""
        rank = array("I", bytes(4 * len(pairs)))
        for number, pair in enumerate(pairs):
            rank[known[pair]] = number
        spelt = [place[name.encode()] + place[value.encode()] for name, value in pairs]
        ordered = sorted((struct.pack(f">{len(row)}I", *(rank[n] for n in row)), entry) for row, entry in rows)
        postings: dict[int, array] = defaultdict(lambda: array("I"))
        everything = array("I")
        at = file.tell()
        for key, entry in ordered:
            row = struct.unpack(f">{len(key) // 4}I", key)
            data = uvarint(len(row)) + b"".join([spelt[number] for number in row]) + entry
            whole = uvarint(len(data)) + data + self._checked(data)
            everything.append(at // 16)
            for number in row:
                postings[number].append(at // 16)
            whole += bytes(-len(whole) % 16)
            file.write(whole)
            at += len(whole)
            chunks, samples = self._samples[entry]
            self._counts["numSeries"] += 1
            self._counts["numChunks"] += chunks
            self._counts["numSamples"] += samples
        return [(("", ""), everything), *((pair, postings[number]) for number, pair in enumerate(pairs))]


def _runs(values: Sequence[float | None]) -> Iterator[tuple[int, list[float]]]:
    """(index of the first, values) of each chunk. Where samples end before the end, a stale marker follows."""
    for there, group in groupby(enumerate(values), key=lambda each: each[1] is not None):
        if not there:
            continue
        found = list(group)
        run = [value for _, value in found]
        if found[-1][0] + 1 < len(values):
            run.append(STALE)
        for begin in range(0, len(run), CHUNK_SAMPLES):
            yield found[0][0] + begin, run[begin : begin + CHUNK_SAMPLES]
