"""`gpuwatch diagnose --bundle`: puts a support bundle on the disk and says what is in it."""

from pathlib import Path

from gpuwatch.cli.console.session import Session
from gpuwatch.diagnose.bundling.bundle import Contents, write_bundle

KIB = 1 << 10


def save(session: Session, target: Path, contents: Contents) -> None:
    """Write it; where it is and what it lacks goes to stderr.

    Raises:
        GpuwatchError: it cannot be written.
    """
    written = write_bundle(target, contents)
    size = max(1, written.bytes // KIB)
    session.terminal.hint(f"{target}: {written.files} files, {size} KiB; look through it before you hand it out")
    if written.missing:
        session.terminal.hint(f"README.txt in it names {len(written.missing)} things that it lacks")
