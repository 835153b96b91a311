"""Scripted misbehaviour and call counters of a fake driver."""

import ctypes
import platform
import re
from typing import Any

from tests.fakes.libnvml import library

_FUTEX = {"x86_64": 202, "aarch64": 98}  # syscall numbers; elsewhere a sleeper notices within a second
_WAKE, _EVERYBODY = 1, 2**31 - 1
_NO_PERMISSION = 4  # nvmlReturn_t


class ScriptedFaults:
    """Makes calls misbehave, and counts them.

    A function is named as in nvml.h; without a version suffix the name covers all its versions, `*` covers every
    function. `gpu` is the slot; None means every GPU, and calls that concern none.
    """

    control: Any  # layout.ControlStruct

    def hang(self, function: str = "*", gpu: int | None = None) -> None:
        """Calls do not return until `clear`."""
        self._rule(function, gpu, hang=1)

    def crash(self, function: str = "*", gpu: int | None = None) -> None:
        """The next call dies of SIGSEGV; the one after it does not."""
        self._rule(function, gpu, crash=1)

    def delay(self, seconds: float, function: str = "*", gpu: int | None = None) -> None:
        """Calls take this much longer."""
        self._rule(function, gpu, delay_us=int(seconds * 1e6))

    def error(self, code: int, function: str = "*", gpu: int | None = None) -> None:
        """Calls return this nvmlReturn_t (0: success, with nothing written)."""
        self._rule(function, gpu, error=code + 1)

    def forbid(self, gpu: int | None = None) -> None:
        """Clients lack the right to set anything: setters return NO_PERMISSION."""
        for name in library.SETTERS:
            self.error(_NO_PERMISSION, name, gpu)

    def clear(self, function: str | None = None, gpu: int | None = None) -> None:
        """Ends the misbehaviour set with the same names (all of it without a function) and releases hung calls."""
        if function is not None:
            self._rule(function, gpu, hang=0, crash=0, delay_us=0, error=0)
            return
        for call in self.control.calls[: len(library.functions()) + 1]:
            hung = [rule for rule in call.rules if rule.hang]
            ctypes.memset(call.rules, 0, ctypes.sizeof(call.rules))
            for rule in hung:
                self._wake(ctypes.addressof(rule))

    def calls(self, function: str | None = None) -> int:
        """Calls since the start or `reset_calls`, of one function or of all."""
        indices = range(1, len(library.functions()) + 1) if function is None else self._indices(function)
        return sum(self.control.calls[index].count for index in indices)

    def called(self) -> dict[str, int]:
        """Each function that was called, and how often."""
        counts = ((f.name, self.control.calls[i].count) for i, f in enumerate(library.functions(), start=1))
        return {name: count for name, count in counts if count}

    def in_flight(self, function: str) -> int:
        """Calls that have not returned; a process that died inside one is counted until `reset_calls`."""
        return sum(self.control.calls[index].in_flight for index in self._indices(function))

    def reset_calls(self) -> None:
        """All counters to 0, and no setter kept; only while no call is inside."""
        self.control.set_head = 0
        for call in self.control.calls:
            call.count = call.in_flight = 0

    def _indices(self, function: str) -> list[int]:
        if function == "*":
            return [0]
        name = re.compile(re.escape(function) + r"(WithFlags)?(_v\d+)?")
        found = [i for i, f in enumerate(library.functions(), start=1) if name.fullmatch(f.name)]
        if not found:
            raise ValueError(f"nvml.h has no function {function}")
        return found

    def _rule(self, function: str, gpu: int | None, **values: int) -> None:
        column = 0 if gpu is None else gpu + 1
        for index in self._indices(function):
            rule = self.control.calls[index].rules[column]
            for name, value in values.items():
                setattr(rule, name, value)
            self._wake(ctypes.addressof(rule))

    def _wake(self, address: int) -> None:
        """Wakes the calls that sleep on a word of the control file, in whatever process they are."""
        if number := _FUTEX.get(platform.machine()):
            ctypes.CDLL(None).syscall(number, ctypes.c_void_p(address), _WAKE, _EVERYBODY, None, None, 0)
