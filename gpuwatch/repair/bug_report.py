"""NVIDIA's own report of a sick GPU, before a reset removes what it would show.

The agent has no right to make it; the repairer has, and `support.bug_report` says whether it does and how.
"""

import contextlib
import os
import shutil
from pathlib import Path

from gpuwatch.agent.support_cases import FOLDER, MIN_FREE, case_name
from gpuwatch.config import SupportConfig
from gpuwatch.model.text import visible
from gpuwatch.process.command import run_command
from gpuwatch.storage.private_folder import UnsafePath, make_private

MAX_BYTES = 32 << 20


def save_bug_report(state_dir: Path, settings: SupportConfig, now: float) -> tuple[bool, str]:
    """Run the command within its deadline and keep the one file it has written: whether there is one, and its path or
    what went wrong. What else it wrote is deleted.
    """
    folder = state_dir / FOLDER
    place = folder / ".bug-report"
    try:
        make_private(folder)
        system = os.statvfs(folder)
        if (free := system.f_bavail * system.f_frsize) < MIN_FREE:
            return False, f"only {free >> 20} MiB of its disk are free"
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(mode=0o700)
        ended = run_command(settings.bug_report, settings.deadline, {"file": str(place / "nvidia-bug-report.log")})
        made = sorted(each for each in place.iterdir() if each.is_file() and not each.is_symlink())
        if ended.status != 0 or not made:
            how = "" if ended.status is None else f"it ended with {ended.status}; "
            return False, f"{how}{visible(ended.output)}"
        if made[0].stat().st_size > MAX_BYTES:
            return False, f"it is larger than {MAX_BYTES >> 20} MiB"
        target = folder / case_name(now, "bug_report", ".log.gz" if made[0].suffix == ".gz" else ".log")
        made[0].chmod(0o600)
        made[0].replace(target)
    except (OSError, UnsafePath) as error:
        return False, str(error)
    finally:
        with contextlib.suppress(OSError):
            shutil.rmtree(place, ignore_errors=True)
    return True, str(target)
