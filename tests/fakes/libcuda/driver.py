"""Controls the fake CUDA driver: what it shall do, and which calls a program made."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fakes.libcuda import library

FREE = 48 << 20
"""Bytes each device has free: enough for every check, and quick."""


class FakeCuda:
    """A machine with these devices (`GPU-...`, `MIG-...`), kept in `directory/cuda`; use it as a context manager.

    `function` is a name that drivers export, such as cuMemAlloc_v2; `device` one of `devices`, or `*` for all. What is
    scripted counts for processes that start afterwards; a hang ends with the context manager.
    """

    def __init__(self, directory: Path, devices: Sequence[str], *, free: int = FREE) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.library = library.build()
        self.path = directory / "cuda"
        self.path.write_text("".join(f"device {uuid} {free}\n" for uuid in devices), encoding="ascii")
        self._journal = directory / "cuda.journal"

    @property
    def env(self) -> dict[str, str]:
        """What a program's environment needs."""
        return {"GPUWATCH_FAKE_CUDA": str(self.path)}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.path.unlink(missing_ok=True)

    def error(self, function: str, code: int, device: str = "*") -> None:
        """Calls answer with this CUresult."""
        self._add(f"rule {function} {device} error {code}")

    def hang(self, function: str, device: str = "*") -> None:
        """Calls do not return, whatever signal comes."""
        self._add(f"rule {function} {device} hang 0")

    def crash(self, function: str, device: str = "*") -> None:
        """The process dies of SIGSEGV."""
        self._add(f"rule {function} {device} crash 0")

    def delay(self, function: str, seconds: float, device: str = "*") -> None:
        """Calls take this much longer."""
        self._add(f"rule {function} {device} delay {seconds}")

    def wrong(self, what: str, element: int, device: str = "*") -> None:
        """One element comes out wrong: of `vector_add` and `memory` (a stuck bit) a word, of the copies `up` (to the
        host) and `peer` a byte; `ptx`: the driver's compiler refuses the text.
        """
        self._add(f"wrong {what} {device} {element}")

    def speed(self, way: str, bytes_per_second: float, device: str = "*") -> None:
        """Of copies `down` (to the device), `up` and `peer`, by the device's clock."""
        self._add(f"speed {way} {device} {bytes_per_second}")

    def apart(self, one: str, other: str) -> None:
        """The two cannot reach each other's memory."""
        self._add(f"apart {one} {other}")

    def calls(self) -> list[str]:
        """Functions called so far, in order, of all processes."""
        return self._entries("call")

    def misuses(self) -> list[str]:
        """What hardware may let pass and no program should do."""
        return self._entries("misuse")

    def leaks(self) -> list[str]:
        """What was not given back."""
        return self._entries("leak")

    def load_seconds(self) -> float:
        """How long kernels of the hardware campaign have run so far."""
        return sum(map(float, self._entries("load")))

    def ends(self) -> int:
        """Processes that ended in an orderly way."""
        return len(self._entries("end"))

    def _add(self, line: str) -> None:
        with self.path.open("a", encoding="ascii") as script:
            script.write(line + "\n")

    def _entries(self, kind: str) -> list[str]:
        if not self._journal.exists():
            return []
        entries = (line.split(" ", 2) for line in self._journal.read_text(encoding="ascii").splitlines())
        return [text for _, found, text in entries if found == kind]
