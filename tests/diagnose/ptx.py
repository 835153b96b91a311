"""Runs PTX one thread at a time, as far as the kernels of the active checks go: the very text is tested."""

import re
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

MASK = {".u32": 0xFFFFFFFF, ".b32": 0xFFFFFFFF, ".u64": 2**64 - 1, ".b64": 2**64 - 1}
_ENTRY = re.compile(r"\.visible \.entry (\w+)\((.*?)\)\s*\{(.*?)\n\}", re.DOTALL)
_PARAMETER = re.compile(r"\.param (\.\w+) (\w+)")
_REGISTERS = re.compile(r"\.reg (\.\w+) %(\w+)<(\d+)>;")


class Entry(NamedTuple):
    """A kernel: its parameters (type, name), registers (prefix -> type, count) and lines."""

    parameters: tuple[tuple[str, str], ...]
    registers: dict[str, tuple[str, int]]
    lines: tuple[str, ...]


def entries(text: str) -> dict[str, Entry]:
    """By name."""
    found = {}
    for name, parameters, body in _ENTRY.findall(text):
        registers = {prefix: (kind, int(count)) for kind, prefix, count in _REGISTERS.findall(body)}
        lines = [line.strip() for line in body.splitlines() if line.strip() and not line.strip().startswith(".reg")]
        found[name] = Entry(tuple(_PARAMETER.findall(parameters)), registers, tuple(lines))
    return found


class Machine:
    """Memory from address 0 on, and a way to run a kernel over it."""

    def __init__(self, size: int) -> None:
        self.memory = bytearray(size)

    def launch(self, entry: Entry, blocks: int, threads: int, **arguments: int) -> None:
        """Every thread to its end, one after another."""
        assert [name for _, name in entry.parameters] == list(arguments)
        for block in range(blocks):
            for thread in range(threads):
                place = {"%ctaid.x": block, "%ntid.x": threads, "%tid.x": thread}
                _Thread(self.memory, entry, place, arguments).run()


class _Thread:
    def __init__(self, memory: bytearray, entry: Entry, place: dict[str, int], arguments: dict[str, int]) -> None:
        self.memory, self.entry, self.place, self.arguments = memory, entry, place, arguments
        self.kinds = {name: kind for kind, name in entry.parameters}
        self.registers: dict[str, Any] = {}

    def run(self) -> None:
        at = 0
        while True:
            line = self.entry.lines[at].rstrip(";")
            at += 1
            if line.endswith(":"):
                continue
            if line.startswith("@"):
                condition, line = line.split(None, 1)
                if not self.value(condition[1:]):
                    continue
            name, _, rest = line.partition(" ")
            if name == "ret":
                return
            if name == "bra":
                at = self.entry.lines.index(rest.strip() + ":")
                continue
            operation, *kinds = re.findall(r"^[a-z]+|\.[a-z0-9]+", name)
            OPERATIONS[operation](self, kinds, [operand.strip() for operand in rest.split(",")])

    def set(self, name: str, value: Any) -> None:
        prefix, number = re.fullmatch(r"%([a-z]+)(\d+)", name).groups()
        kind, count = self.entry.registers[prefix]
        assert int(number) < count, f"{name} is not declared"
        self.registers[name] = value & MASK[kind] if kind in MASK else value

    def value(self, operand: str) -> Any:
        if operand in self.place:
            return self.place[operand]
        return self.registers[operand] if operand.startswith("%") else int(operand, 0)

    def address(self, operand: str) -> int:
        register, _, offset = operand.strip("[]").partition("+")
        address = self.value(register) + int(offset or 0)
        assert address % 4 == 0
        assert 0 <= address <= len(self.memory) - 4, f"{address} is outside the memory"
        return address


def _load(thread: _Thread, kinds: list[str], operands: list[str]) -> None:
    space, kind = kinds
    if space == ".param":
        name = operands[1].strip("[]")
        assert thread.kinds[name] == kind
        thread.set(operands[0], thread.arguments[name])
    else:
        form = {".u32": "<I", ".f32": "<f"}[kind]
        thread.set(operands[0], struct.unpack_from(form, thread.memory, thread.address(operands[1]))[0])


def _store(thread: _Thread, kinds: list[str], operands: list[str]) -> None:
    form = {".u32": "<I", ".f32": "<f"}[kinds[1]]
    struct.pack_into(form, thread.memory, thread.address(operands[0]), thread.value(operands[1]))


def _atom(thread: _Thread, kinds: list[str], operands: list[str]) -> None:
    _, how, _ = kinds
    at, value = thread.address(operands[1]), thread.value(operands[2])
    old = struct.unpack_from("<I", thread.memory, at)[0]
    thread.set(operands[0], old)
    new = {".add": (old + value) & 0xFFFFFFFF, ".min": min(old, value)}[how]
    struct.pack_into("<I", thread.memory, at, new)


def _computed(how: Callable[..., Any]) -> Callable[[_Thread, list[str], list[str]], None]:
    def run(thread: _Thread, kinds: list[str], operands: list[str]) -> None:
        thread.set(operands[0], how(*(thread.value(operand) for operand in operands[1:])))

    return run


def _compare(thread: _Thread, kinds: list[str], operands: list[str]) -> None:
    a, b = thread.value(operands[1]), thread.value(operands[2])
    thread.set(operands[0], {".ge": a >= b, ".eq": a == b}[kinds[0]])


OPERATIONS: dict[str, Callable[[_Thread, list[str], list[str]], None]] = {
    "ld": _load,
    "st": _store,
    "atom": _atom,
    "setp": _compare,
    "mov": _computed(lambda a: a),
    "cvta": _computed(lambda a: a),  # the generic and the global address of global memory are the same
    "add": _computed(lambda a, b: a + b),
    "mul": _computed(lambda a, b: a * b),
    "mad": _computed(lambda a, b, c: a * b + c),
    "xor": _computed(lambda a, b: a ^ b),
}
