"""The write-ahead record of every setting that gpuwatch makes on GPUs: `actuation.json` in the state directory.

The problem: a power limit or a clock lock outlives the process that set it. If the tuner is killed, nothing in the
driver tells that the value is gpuwatch's, nor what it was before; a GPU would stay slow until somebody notices.

Writing the record after the driver call does not work: a crash between the two leaves a setting that nothing knows of.
Writing it before, and replacing the value of a setting that is already recorded, does not work either: a crash between
the two leaves the old value in force while the record lists the new one, and restoring refuses to touch a value that it
does not know, for it may be an administrator's.

So a setting is on the disk before the driver is called, and lists every value that may be in force: the new one and
those of before. After the driver has confirmed the new one, the others are taken out (`confirm`). The original is
recorded once, at the first write, and never again: later the driver reports our own value. A boot or a reload of the
driver ends every setting, so each names its boot and its driver version. Restoring goes the other way around: first the
driver, then the record. A crash between the two restores twice, which is harmless.

The record is authoritative: a setting that is not in it was not made by gpuwatch. A file that cannot be read, or that
lists impossible values, therefore stops every write until a person has looked at it.
"""

import math
from collections import Counter
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.parse import quote

from msgspec.structs import replace

from gpuwatch.model.errors import GpuwatchError
from gpuwatch.model.setting import Actuation, Knob, Setting, Trigger
from gpuwatch.storage.versioned_file import VersionedFile, lock_file

NAME = "actuation.json"

MOST_VALUES = 32
"""Of one knob, that may be in force; a driver that confirms none of so many is not asked for more."""


class SettingsRecord:
    """The file in `directory`. Several processes share it: each holds `lock` while it changes the file.

    A process that calls the driver about a GPU holds `lock_gpu` from before the change of the record to after the
    driver's answer. So a GPU that hangs in the driver blocks only its own lock, and its setting stays recorded until
    the call has returned.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME
        self._file = VersionedFile(
            self.path,
            Actuation,
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
        actuation = self._file.read() or Actuation()
        if wrong := next(filter(None, map(_nonsense, actuation.settings)), "") or _twice(actuation.settings):
            raise self._file.unreadable(wrong)
        return actuation

    def add(self, setting: Setting) -> None:
        """Record a setting that is about to be made. The first original of a knob stays, and so do the values of
        before, which may still be in force. It is on the disk when this returns. Raises as `read`, or GpuwatchError.
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
        self._file.write(replace(actuation, settings=(*others, setting)))

    def confirm(self, uuid: str, knob: Knob, value: float) -> None:
        """The driver has said that this, and nothing else of ours, is in force. Raises as `add`."""
        actuation = self.read()
        settings = tuple(
            replace(each, applied=(value,)) if (each.uuid, each.knob) == (uuid, knob) else each
            for each in actuation.settings
        )
        if settings != actuation.settings:
            self._file.write(replace(actuation, settings=settings))

    def settle(self, gone: tuple[Setting, ...], restored: int, trigger: Trigger) -> None:
        """Take settings out, if they are still as they were, and count those that were given back. Raises as `add`."""
        actuation = self.read()
        left = tuple(each for each in actuation.settings if each not in gone)
        restores = actuation.restores | {trigger: actuation.restores.get(trigger, 0) + restored}
        if (changed := replace(actuation, settings=left, restores=restores)) != actuation:
            self._file.write(changed)

    def lock(self, patience: float) -> AbstractContextManager[bool]:
        """Hold the record while it is changed, against other processes and threads; False as of `lock_file`."""
        return self._file.lock(patience)

    def lock_tuner(self, patience: float) -> AbstractContextManager[bool]:
        """Hold what only one tuner of a machine may have; as `lock`."""
        return lock_file(self.path.with_name("tuner.lock"), patience)

    def lock_gpu(self, uuid: str, patience: float) -> AbstractContextManager[bool]:
        """Hold one GPU's settings, from the record's change to the driver's answer; as `lock`. Taken before that."""
        return lock_file(self.path.with_suffix(f".{quote(uuid, safe='')}.lock"), patience)


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
