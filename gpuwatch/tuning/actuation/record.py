"""The write-ahead file of everything gpuwatch has set on GPUs: `actuation.json` in the state directory.

A setting is on the disk before the driver is asked for it, so that whoever comes after a crash can give it back. A file
that cannot be read, or says what cannot be, stops every write: what is not known cannot be undone.
"""

import contextlib
import fcntl
import math
import os
import stat
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from gpuwatch.model.errors import GpuwatchError, PermissionMissing
from gpuwatch.model.setting import Actuation, Knob, Setting, Trigger

NAME = "actuation.json"
SCHEMA = 1
RETRY_SECONDS = 0.02

MOST_VALUES = 32
"""Of one knob, that may be in force; a driver that confirms none of so many is not asked for more."""

OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
"""Whoever writes the record decides what a process with CAP_SYS_ADMIN sets."""


class RecordUnreadable(GpuwatchError):
    """The file is there and cannot be understood; nothing may be set until a person has looked."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: int
    actuation: Actuation


class _Versioned(msgspec.Struct):
    schema: int


class SettingsRecord:
    """The file in `directory`. Several processes share it: whoever changes it holds `lock` meanwhile.

    Whoever asks the driver for something of a GPU holds `lock_gpu` from before the change to after the answer. So a GPU
    that hangs in the driver keeps only its own lock, and what is recorded of it stays until its call has returned.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def read(self) -> Actuation:
        """What is recorded; nothing where there is no file.

        Raises:
            PermissionMissing: the file may not be read.
            RecordUnreadable: it is not what gpuwatch wrote, or another version of gpuwatch wrote it.
        """
        try:
            with self.path.open("rb") as file:
                found, body = os.fstat(file.fileno()), file.read()
        except FileNotFoundError:
            return Actuation()
        except OSError as error:
            raise self._refused(error) from error
        if found.st_uid not in (0, os.geteuid()) or found.st_mode & OTHERS_WRITE:
            raise self._unreadable(f"it is of user {found.st_uid}, or others may write it")
        try:
            if (schema := msgspec.json.decode(body, type=_Versioned).schema) != SCHEMA:
                raise self._unreadable(f"schema {schema}, this gpuwatch knows {SCHEMA}")
            actuation = msgspec.json.decode(body, type=_File).actuation
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._unreadable(str(error)) from error
        if wrong := next(filter(None, map(_nonsense, actuation.settings)), "") or _twice(actuation.settings):
            raise self._unreadable(wrong)
        return actuation

    def add(self, setting: Setting) -> None:
        """Record a setting that is about to be made; the first original of a knob stays, and so does what may be in
        force from before. It is on the disk when this returns. Raises as `read`, or GpuwatchError: it is not.
        """
        actuation = self.read()
        others = tuple(each for each in actuation.settings if _key(each) != _key(setting))
        before = next((each for each in actuation.settings if _key(each) == _key(setting)), None)
        if before is not None and (before.boot_id, before.driver) == (setting.boot_id, setting.driver):
            applied = tuple(dict.fromkeys((*setting.applied, *before.applied)))
            setting = replace(setting, original=before.original, applied=applied)
            if len(applied) > MOST_VALUES:
                raise GpuwatchError("a setting was not recorded, hence not made", f"{len(applied)} are not confirmed")
        if wrong := _nonsense(setting):
            raise GpuwatchError("a setting was not recorded, hence not made", wrong)
        self._write(replace(actuation, settings=(*others, setting)))

    def confirm(self, uuid: str, knob: Knob, value: float) -> None:
        """The driver has said that this, and nothing else of ours, is in force. Raises as `add`."""
        actuation = self.read()
        settings = tuple(
            replace(each, applied=(value,)) if (each.uuid, each.knob) == (uuid, knob) else each
            for each in actuation.settings
        )
        if settings != actuation.settings:
            self._write(replace(actuation, settings=settings))

    def settle(self, gone: tuple[Setting, ...], restored: int, trigger: Trigger) -> None:
        """Take settings out, if they are still as they were, and count those that were given back. Raises as `add`."""
        actuation = self.read()
        left = tuple(each for each in actuation.settings if each not in gone)
        restores = actuation.restores | {trigger: actuation.restores.get(trigger, 0) + restored}
        if (changed := replace(actuation, settings=left, restores=restores)) != actuation:
            self._write(changed)

    def lock(self, patience: float) -> AbstractContextManager[bool]:
        """Hold the record while it is changed, against other processes and threads. False: another one did not let go
        for `patience` seconds, or there is nothing to lock with. A process that dies lets go.
        """
        return _locked(self.path.with_suffix(".lock"), patience)

    def lock_tuner(self, patience: float) -> AbstractContextManager[bool]:
        """Hold what only one tuner of a machine may have; as `lock`."""
        return _locked(self.path.with_name("tuner.lock"), patience)

    def lock_gpu(self, uuid: str, patience: float) -> AbstractContextManager[bool]:
        """Hold one GPU's settings, from the record's change to the driver's answer; as `lock`. Taken before that."""
        return _locked(self.path.with_suffix(f".{quote(uuid, safe='')}.lock"), patience)

    def _write(self, actuation: Actuation) -> None:
        partial = self.path.with_suffix(".partial")
        try:
            partial.unlink(missing_ok=True)
            with open(partial, "xb", opener=_private) as file:  # never through a link that lies there
                file.write(msgspec.json.format(msgspec.json.encode(_File(SCHEMA, actuation)), indent=2))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.path)
            directory = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> GpuwatchError:
        kind = PermissionMissing if isinstance(error, PermissionError) else GpuwatchError
        why = error.strerror or str(error)
        return kind(f"cannot use {self.path}", why, "nothing is set on GPUs meanwhile; look at --state-dir")

    def _unreadable(self, why: str) -> RecordUnreadable:
        return RecordUnreadable(
            f"{self.path} cannot be understood",
            why,
            "nothing is set on GPUs meanwhile; compare `nvidia-smi -q -d POWER,CLOCK` with it, then move it away",
        )


@contextlib.contextmanager
def _locked(path: Path, patience: float) -> Iterator[bool]:
    deadline = time.monotonic() + patience
    with contextlib.ExitStack() as stack:
        try:
            lock = stack.enter_context(path.open("ab"))
        except OSError:
            yield False
            return
        held = _take(lock.fileno())
        while not held and time.monotonic() < deadline:
            time.sleep(RETRY_SECONDS)
            held = _take(lock.fileno())
        yield held


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _key(setting: Setting) -> tuple[str, str]:
    return setting.uuid, setting.knob


def _twice(settings: tuple[Setting, ...]) -> str:
    """Given back one after the other, the second could raise what the first has restored."""
    counts = Counter(map(_key, settings))
    return next((f"{uuid}: {knob} is listed twice" for (uuid, knob), count in counts.items() if count > 1), "")


def _nonsense(setting: Setting) -> str:
    """What gpuwatch never writes; a cap above the original would make a restore of it a rise."""
    original, applied = setting.original, setting.applied
    if not setting.uuid or not applied:
        return "a setting without a GPU or a value"
    if not all(math.isfinite(value) and value > 0 for value in (*applied, original) if value is not None):
        return f"{setting.uuid}: {setting.knob} of {applied} is no value"
    if (original is None) == (setting.knob == "power_limit"):
        return f"{setting.uuid}: {setting.knob} with an original of {original}"
    above = original is not None and max(applied) > original
    return f"{setting.uuid}: {setting.knob} of {max(applied)} is above the original {original}" if above else ""
