"""The write-ahead record of every setting that gpuwatch makes on GPUs: `actuation.json` in the state directory.

The problem: a power limit or a clock lock outlives the process that set it. If the tuner is killed, nothing in the
driver shows that the value is gpuwatch's, nor what it was before; a GPU would stay slow until an operator notices.

Writing the record after the driver call does not work: a crash between the two leaves a setting that is not recorded.
Writing it before, and replacing the value of a setting that is already recorded, does not work either: a crash between
the two leaves the old value in force while the record lists the new one, and restoring refuses to touch a value that it
does not know, for it may be an administrator's.

So a setting is on the disk before the driver is called, and lists every value that may be in force: the new one and
the earlier ones. After the driver has confirmed the new one, the others are removed (`confirm`). The original is
recorded once, at the first write, and never again: later the driver reports our own value. A boot or a reload of the
driver ends every setting, so each names its boot and its driver version. Restoring goes the other way around: first the
driver, then the record. A crash between the two restores twice, which is harmless.

The record is authoritative: a setting that is not in it was not made by gpuwatch. A file that cannot be read, or that
lists impossible values, therefore stops every write until an operator has checked it.

A process that writes a line chooses its original, and restoring sets that. Comparing the line with the driver does not
help: an administrator's limit of 500 W and one of gpuwatch's look the same. So the tuner's folder is closed to other
processes, the file to other users, and its settings carry a seal: a keyed hash, by a key in a file of its own. A new
key is made whenever the first setting is recorded: a copied old line is then as invalid as an invented one.
"""

import contextlib
import hmac
import math
import os
import secrets
import stat
import threading
from collections import Counter
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.snapshot import Record
from gpuwatch.storage.versioned_file import VersionedFile, lock_file, read_file, replace_file
from gpuwatch.tuning.model.setting import Actuation, Knob, Setting, Trigger

FOLDER = "tuner"
FOLDER_MODE = 0o700
"""The tuner's folder in the state directory; processes that set nothing cannot write to it."""

NAME = "actuation.json"

KEY_NAME, KEY_BYTES = "actuation.key", 32
RECORD_MODE = 0o600

LOCK_SECONDS = 0.5
"""How long a change waits for another process that holds the record."""

MOST_VALUES = 32
"""Values of one knob that may be in force; with so many that the driver has not confirmed, no other is set."""


class _Sealed(Record, frozen=True, kw_only=True):
    """The file's content; `seal` is empty where no setting is listed."""

    actuation: Actuation
    seal: str = ""


class RecordBusy(GpuwatchError):
    """Another process holds the record; nothing was written."""


UNWRITTEN = GpuwatchError("the record was not written", "the thread that wrote it has failed")


@dataclass(eq=False)
class _Change:
    """A change by one thread. The thread that holds the record's lock carries it out. `error` is there until
    the write has succeeded, for without a record nothing may be set.
    """

    change: Callable[[Actuation], Actuation]
    done: threading.Event = field(default_factory=threading.Event)
    error: GpuwatchError | None = UNWRITTEN


class SettingsRecord:
    """The file in `directory`. Several processes share it: each holds `lock` while it changes the file.

    A process that calls the driver about a GPU holds `lock_gpu` from before the change of the record to after the
    driver's answer. So a GPU that hangs in the driver blocks only its own lock, and its setting stays recorded until
    the call has returned.
    """

    def __init__(self, directory: Path) -> None:
        self.directory, self.path = directory, directory / FOLDER / NAME
        self._key_path = self.path.with_name(KEY_NAME)
        self._mutex, self._waiting = threading.Lock(), list[_Change]()
        self._file = VersionedFile(
            self.path,
            _Sealed,
            mode=RECORD_MODE,
            folder_mode=FOLDER_MODE,
            trusted=True,  # its writer decides what a process with CAP_SYS_ADMIN sets
            next_step="nothing is set on GPUs meanwhile; look at --state-dir",
            repair="nothing is set on GPUs meanwhile; compare it with `nvidia-smi -q -d POWER,CLOCK`, then move it",
        )

    def read(self) -> Actuation:
        """The recorded settings; none where there is no file.

        Raises:
            PermissionMissing: the file may not be read.
            UnreadableFile: it is not what this version of gpuwatch writes.
        """
        found = self._decoded()
        while found.actuation.settings and not hmac.compare_digest(
            found.seal.encode(), _seal(found.actuation, self._seal_key()).encode()
        ):
            before, found = found, self._decoded()  # another process may have written both between the two reads
            if found == before:
                raise self._file.unreadable("its seal is wrong: a setting in it was not recorded by this gpuwatch")
        return found.actuation

    def read_unsealed(self) -> Actuation:
        """The settings for display: also of a recorded tree, which has no key, and other owners. Raises as `read`."""
        return self._decoded(only_shown=True).actuation

    def _decoded(self, *, only_shown: bool = False) -> _Sealed:
        found = self._file.read(only_shown=only_shown) or _Sealed(actuation=Actuation())
        settings = found.actuation.settings
        wrong = list(filter(None, map(_invalid_reason, settings)))
        # Restored one after the other, the second setting of a knob could raise what the first has restored.
        counts = Counter(map(_key, settings))
        wrong += [f"{uuid}: {knob} is listed twice" for (uuid, knob), count in counts.items() if count > 1]
        if wrong:
            raise self._file.unreadable(wrong[0])
        return found

    def add(self, setting: Setting) -> None:
        """Record a setting that is about to be made. The first original of a knob stays, and so do the earlier
        values, which may still be in force. It is on the disk when this returns.

        Raises:
            RecordBusy: another process holds the record.
            GpuwatchError: as `read`, or it cannot be written; nothing was recorded.
        """
        self._carry_out(partial(_added, setting=setting))

    def confirm(self, uuid: str, knob: Knob, value: float) -> None:
        """The driver has confirmed this value: no other value of ours is in force. Raises as `add`."""

        def confirmed(actuation: Actuation) -> Actuation:
            settings = tuple(
                replace(each, applied=(value,)) if (each.uuid, each.knob) == (uuid, knob) else each
                for each in actuation.settings
            )
            return replace(actuation, settings=settings)

        self._carry_out(confirmed)

    def settle(self, gone: tuple[Setting, ...], restored: int, trigger: Trigger) -> None:
        """Remove settings, if they are still as they were, and count those that were restored. Raises as `add`."""

        def settled(actuation: Actuation) -> Actuation:
            left = tuple(each for each in actuation.settings if each not in gone)
            restores = actuation.restores | {trigger: actuation.restores.get(trigger, 0) + restored}
            return replace(actuation, settings=left, restores=restores)

        self._carry_out(settled)

    def _carry_out(self, change: Callable[[Actuation], Actuation]) -> None:
        """Make the change, and in the same write those of the threads that wait for the lock.

        All GPUs are set and restored at once, each by a thread, and a write waits for the disk twice. One write for
        each would take a node of 8 GPUs longer than the tuner waits for the driver, if the disk takes 30 ms to flush.
        """
        own = _Change(change)
        with self._mutex:
            self._waiting.append(own)
        with self.lock(LOCK_SECONDS) as held:
            with self._mutex:
                is_taken = own not in self._waiting  # by a thread that may still wait for the disk
                batch = list(self._waiting) if held and not is_taken else []
                self._waiting = [each for each in self._waiting if each is not own and each not in batch]
            if batch:
                self._write_all(batch)
        if not is_taken and not batch:
            try:
                self._file.make_folder()
            except OSError as error:
                raise self._file.error(error, "cannot write") from error
            raise RecordBusy(
                f"cannot lock {self.path}",
                "another process holds the lock, its disk takes too long, or the lock cannot be opened",
                "it is tried again; look at --state-dir",
            )
        own.done.wait()
        if own.error is not None:
            raise own.error

    def _write_all(self, batch: Collection["_Change"]) -> None:
        try:
            before = now = self.read()
            changed = []
            for each in batch:
                try:
                    now = each.change(now)
                    changed.append(each)
                except GpuwatchError as error:
                    each.error = error
            if now != before:
                if not before.settings:
                    self._make_key()
                seal = _seal(now, self._seal_key()) if now.settings else ""
                self._file.write(_Sealed(actuation=now, seal=seal))
            for each in changed:
                each.error = None
        except GpuwatchError as error:
            for each in batch:
                each.error = error
        finally:
            for each in batch:
                each.done.set()

    def _make_key(self) -> None:
        try:
            self._file.make_folder()
            replace_file(self._key_path, (secrets.token_bytes(KEY_BYTES),), mode=RECORD_MODE)
        except OSError as error:
            raise self._file.error(error, "cannot write") from error

    def _seal_key(self) -> bytes:
        """Raises UnreadableFile: there is no key that only gpuwatch can have written."""
        try:
            status, key = read_file(self._key_path, KEY_BYTES)
        except OSError as error:
            raise self._file.unreadable(f"the key of its seal, {self._key_path}: {error.strerror}") from error
        if status.st_uid not in (0, os.geteuid()) or stat.S_IMODE(status.st_mode) & ~RECORD_MODE:
            raise self._file.unreadable(f"{self._key_path} is not its owner's alone")
        return key

    def lock(self, timeout: float) -> AbstractContextManager[bool]:
        """Hold the record while it is changed, against other processes and threads; False: as for `lock_file`."""
        return self._lock(self.path.with_suffix(".lock"), timeout)

    def lock_tuner(self, timeout: float) -> AbstractContextManager[bool]:
        """Hold the lock that only one tuner of a machine may have; as `lock`."""
        return self._lock(self.path.with_name("tuner.lock"), timeout)

    def lock_gpu(self, uuid: str, timeout: float) -> AbstractContextManager[bool]:
        """Hold one GPU's settings, from the record's change to the driver's answer; as `lock`, and taken before it."""
        return self._lock(self.path.with_suffix(f".{quote(uuid, safe='')}.lock"), timeout)

    def _lock(self, path: Path, timeout: float) -> AbstractContextManager[bool]:
        with contextlib.suppress(OSError, GpuwatchError):  # the write that the lock is for reports it
            self._file.make_folder()
        return lock_file(path, timeout)


def _added(actuation: Actuation, setting: Setting) -> Actuation:
    """Raises GpuwatchError: the setting is not to be made."""
    others = tuple(each for each in actuation.settings if _key(each) != _key(setting))
    before = next((each for each in actuation.settings if _key(each) == _key(setting)), None)
    if before is not None and (before.boot_id, before.driver) == (setting.boot_id, setting.driver):
        applied = tuple(dict.fromkeys((*setting.applied, *before.applied)))
        setting = replace(setting, original=before.original, applied=applied)
        if len(applied) > MOST_VALUES:
            raise GpuwatchError("a setting was not recorded, hence not made", f"{len(applied)} are not confirmed")
    if wrong := _invalid_reason(setting):
        raise GpuwatchError("a setting was not recorded, hence not made", wrong)
    return replace(actuation, settings=(*others, setting))


def _seal(actuation: Actuation, key: bytes) -> str:
    return hmac.digest(key, msgspec.json.encode(actuation), "sha256").hex()


def _key(setting: Setting) -> tuple[str, str]:
    return setting.uuid, setting.knob


def _invalid_reason(setting: Setting) -> str:
    """Why gpuwatch cannot have written this setting; empty: it can. It sets nothing above the original."""
    original, applied = setting.original, setting.applied
    if not setting.uuid or not applied:
        return "a setting without a GPU or a value"
    if not all(math.isfinite(value) and value > 0 for value in (*applied, original) if value is not None):
        return f"{setting.uuid}: {setting.knob} of {applied} is no value"
    if (original is None) == (setting.knob == "power_limit"):
        return f"{setting.uuid}: {setting.knob} with an original of {original}"
    above = original is not None and max(applied) > original
    return f"{setting.uuid}: {setting.knob} of {max(applied)} is above the original {original}" if above else ""
