"""One reset of one GPU: record, close, poll once more, reset, restore.

The order is what makes it safe. The try and the persistence mode before it are on the disk before anything is changed,
so that after a kill in between the next start restores the mode and counts the try. The agent's reader then closes the
GPU, and persistence mode is switched off: either would make the driver answer "In use by another client". Only then do
open device files show whether another client is left, and that is checked last, immediately before the command.
"""

import contextlib
import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from gpuwatch.config import RepairConfig
from gpuwatch.host.plain_file import text
from gpuwatch.model.clock import Clock
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.event import Result
from gpuwatch.model.finding import Finding
from gpuwatch.model.snapshot import Gpu, GpuState, Record
from gpuwatch.model.text import visible
from gpuwatch.model.view import View
from gpuwatch.process.command import run_command
from gpuwatch.repair.eligibility import allocation, nvlink_peers
from gpuwatch.storage.audit import Audit, AuditEntry
from gpuwatch.storage.versioned_file import VersionedFile

log = logging.getLogger(__name__)

RECORD_NAME = "repair.json"

CLOSE_SECONDS = 60.0
"""Seconds for the agent to close the GPU, and to read it again; it polls every ten seconds."""

LET_GO_SECONDS = 15.0
"""Seconds for the persistence daemon to close a GPU after persistence mode was switched off."""

MODE_SECONDS = 60.0
"""Seconds for nvidia-smi to set persistence mode."""

POLL_SECONDS = 1.0


class ResetUnderWay(Record, frozen=True, kw_only=True):
    """Written before a GPU is touched, removed when all is restored. `persistence`: it was on and must be again."""

    gpu: str
    index: int
    at: float
    boot_id: str | None
    persistence: bool = False


class RepairRecord(Record, frozen=True, kw_only=True):
    """`tries`: GPU uuid -> unix times at which a reset was begun."""

    under_way: ResetUnderWay | None = None
    tries: dict[str, tuple[float, ...]] = {}


def record_file(state_dir: Path) -> VersionedFile[RepairRecord]:
    """The record of this machine."""
    return VersionedFile(state_dir / RECORD_NAME, RepairRecord, trusted=True)


class GpuReset:
    """Resets GPUs for a repairer in mode `enforce`. `poll` returns the newest View, `close` reports to the agent which
    GPU its reader may not hold open, `wait` sleeps.
    """

    def __init__(
        self,
        config: RepairConfig,
        proc: Path,
        dev: Path,
        file: VersionedFile[RepairRecord],
        audit: Audit,
        clock: Clock,
        poll: Callable[[], View | None],
        close: Callable[[str | None], None],
        wait: Callable[[float], None],
    ) -> None:
        self._config, self._proc, self._dev, self._file, self._audit = config, proc, dev, file, audit
        self._clock = clock
        self._poll, self._close, self._wait = poll, close, wait

    def recover(self, boot_id: str | None) -> None:
        """Restore what a repairer that was killed had changed. Raises GpuwatchError: the record cannot be used."""
        record = self._file.read() or RepairRecord()
        if (left := record.under_way) is None:
            return
        entry = AuditEntry("reset_gpu", f"gpu/{left.gpu}", "the repairer ended during a reset")
        detail = "cut off; the try counts"
        if left.persistence and left.boot_id == boot_id:  # after a reboot the mode is as the boot has set it
            detail += self._set_persistence(left, on=True)
        self._audit.note(entry, Result.FAILED, detail)
        self._file.write(replace(record, under_way=None))

    def reset(self, view: View, gpu: Gpu, finding: Finding) -> str | None:
        """Reset `gpu`; why it was not reset, None when it was and answers again.

        Raises:
            GpuwatchError: the record cannot be written; nothing was changed.
        """
        identity, now, record = gpu.identity, self._clock.time(), self._file.read() or RepairRecord()
        begun = ResetUnderWay(
            gpu=identity.uuid,
            index=identity.index,
            at=now,
            boot_id=view.snapshot.host.boot_id,
            persistence=bool(gpu.persistence_mode and self._config.nvidia_smi),
        )
        tries = {uuid: tuple(t for t in at if now - t < self._config.window) for uuid, at in record.tries.items()}
        tries = {uuid: at for uuid, at in tries.items() if at}
        kept = {**tries, identity.uuid: (*tries.get(identity.uuid, ()), now)}
        self._file.write(RepairRecord(under_way=begun, tries=kept))
        why = f"{finding.check} on GPU {identity.index}: {finding.message}"
        entry = AuditEntry("reset_gpu", f"gpu/{identity.uuid}", why, (finding.key,), after="reset")
        number = self._audit.intend(entry)
        error, output = "", ""
        try:
            error = self._made_free(begun, gpu)
            if error:
                kept = tries  # nothing was asked of the driver
            else:
                ended = run_command(
                    self._config.command, self._config.deadline, {"uuid": identity.uuid, "index": str(identity.index)}
                )
                output = visible(ended.output)
                if ended.status != 0:
                    error = "" if ended.status is None else f"{self._config.command[0]} ended with {ended.status}"
                    peers = nvlink_peers(view, identity.uuid)
                    joined = f"; joined by NVLink to {', '.join(peers)}, perhaps to be reset together" if peers else ""
                    error = "; ".join(part for part in (error, output) if part) + joined
        finally:
            if begun.persistence:
                output = "; ".join(part for part in (output, self._set_persistence(begun, on=True)) if part)
            self._close(None)
            with contextlib.suppress(GpuwatchError):  # the next start restores it once more, which changes nothing
                self._file.write(RepairRecord(tries=kept))
        if not error and not self._until(lambda: self._is_read(identity.uuid, now), CLOSE_SECONDS):
            error = f"the GPU does not answer after the reset; {output}"
        if not error:
            output = "; ".join(part for part in (output, *self._changes(gpu)) if part)
        self._audit.finish(entry, number, Result.FAILED if error else Result.DONE, error or output)
        return error or None

    def _made_free(self, begun: ResetUnderWay, gpu: Gpu) -> str:
        """Have the GPU closed by its clients; why it is not free, empty when it is."""
        minor = gpu.identity.minor
        if minor is None:
            return "its device file is not known"
        self._close(begun.gpu)
        if not self._until(lambda: self._is_closed(begun.gpu), CLOSE_SECONDS):
            return "the agent does not close the GPU"
        if begun.persistence and (problem := self._set_persistence(begun, on=False)):
            return problem
        self._until(lambda: holders(self._proc, self._dev, minor) == (), LET_GO_SECONDS)
        view, found = self._poll(), holders(self._proc, self._dev, minor)
        if found:
            return found if isinstance(found, str) else f"in use by another client: {', '.join(found)}"
        return "the agent does not answer" if view is None else allocation(view, begun.gpu) or ""

    def _set_persistence(self, begun: ResetUnderWay, *, on: bool) -> str:
        """Empty, or `; ` and a sentence about what went wrong."""
        argv = (self._config.nvidia_smi, "-i", begun.gpu, "-pm", "1" if on else "0")
        ended = run_command(argv, MODE_SECONDS)
        if ended.status == 0:
            return ""
        problem = f"persistence mode could not be {'restored' if on else 'switched off'}: {visible(ended.output)}"
        log.warning("GPU %d: %s", begun.index, problem)
        return problem

    def _changes(self, before: Gpu) -> list[str]:
        """Settings in the driver that the reset has changed, too."""
        view = self._poll()
        after = next((g for g in view.snapshot.gpus if g.identity.uuid == before.identity.uuid), None) if view else None
        if after is None:
            return []
        pairs = (
            ("ECC", before.ecc.enabled, after.ecc.enabled),
            ("power limit", before.power.limit_enforced, after.power.limit_enforced),
            ("MIG mode", before.mig_enabled, after.mig_enabled),
        )
        return [f"{name} was {old}, is {new}" for name, old, new in pairs if old != new]

    def _is_closed(self, uuid: str) -> bool:
        view = self._poll()
        return view is not None and all(gpu.identity.uuid != uuid for gpu in view.snapshot.gpus)

    def _is_read(self, uuid: str, since: float) -> bool:
        view = self._poll()
        states = {s.identity.uuid: s.state for s in view.snapshot.statuses} if view else {}
        fresh = {g.identity.uuid for g in view.snapshot.gpus if g.at > since} if view else set()
        return uuid in fresh and states.get(uuid) is GpuState.FRESH

    def _until(self, holds: Callable[[], bool], seconds: float) -> bool:
        until = self._clock.monotonic() + seconds
        while not holds():
            if self._clock.monotonic() >= until:
                return False
            self._wait(POLL_SECONDS)
        return True


def holders(proc: Path, dev: Path, minor: int) -> tuple[str, ...] | str:
    """`NAME (pid N)` of each process that has /dev/nvidia`minor` open, also what NVML does not list, such as other
    monitors; a text: why that cannot be known.

    The device number identifies the file: any process can name a file of its own nvidia0, and a GPU's device file can
    be open under another name, or deleted.
    """
    try:
        gpu = os.stat(dev / f"nvidia{minor}").st_rdev
    except OSError as error:
        return f"the GPU's device file cannot be read: {error.strerror}"
    if text(proc / "2/comm") != "kthreadd":  # only the machine's own /proc shows kernel threads
        return f"{proc} does not show all processes; run this on the host, or with hostPID"
    found: list[str] = []
    for folder in proc.iterdir():
        if not folder.name.isdigit():
            continue
        try:
            numbers = os.listdir(folder / "fd")
        except PermissionError:
            return f"the files of process {folder.name} cannot be read; run this as root with CAP_SYS_PTRACE"
        except OSError:  # it has ended
            continue
        for number in numbers:
            with contextlib.suppress(OSError):  # closed meanwhile
                file = os.stat(folder / "fd" / number)
                if stat.S_ISCHR(file.st_mode) and file.st_rdev == gpu:
                    found.append(f"{visible(text(folder / 'comm') or '?')} (pid {folder.name})")
                    break
    return tuple(sorted(found))
