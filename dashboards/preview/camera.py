"""Takes the picture: a browser without a window, then fewer colours, for the file's sake."""

import shutil
import subprocess
import tempfile
from pathlib import Path

WIDTH = 1600
HEADER = 56
ROW = 38
BOTTOM = 8
SECONDS = 120
COLOURS = 128


def shoot(url: str, rows: int, file: Path) -> None:
    """Draw the page behind `url`, whose grid has so many rows, into `file`.

    Raises:
        RuntimeError: there is no browser, or it takes no picture.
    """
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise RuntimeError("no chromium; install it: ./scripts/system-packages chromium")
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="gpuwatch-preview-") as profile:
        command = [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            f"--user-data-dir={profile}",
            f"--window-size={WIDTH},{HEADER + rows * ROW + BOTTOM}",
            f"--screenshot={file}",
            url,
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    if done.returncode or not file.exists():
        raise RuntimeError(f"chromium takes no picture: {done.stderr[-2000:]}")
    _shrink(file)


def _shrink(file: Path) -> None:
    """A quarter of the size, where pngquant is installed."""
    if pngquant := shutil.which("pngquant"):
        subprocess.run(
            [pngquant, "--force", "--strip", "--nofs", f"--output={file}", str(COLOURS), str(file)], check=True
        )
