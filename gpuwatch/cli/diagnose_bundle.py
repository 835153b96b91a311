"""`gpuwatch diagnose --bundle`: puts a support bundle on the disk and says what is in it."""

from pathlib import Path

from gpuwatch.cli.session import Session
from gpuwatch.diagnose.bundle import Contents, write_bundle


def save(session: Session, target: Path, contents: Contents) -> None:
    """Write it; where it is and what it lacks goes to stderr.

    Raises:
        GpuwatchError: it cannot be written.
    """
    write_bundle(target, contents)
