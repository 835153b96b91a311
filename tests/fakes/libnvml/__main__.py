"""Runs a command on a fake driver: `python -m tests.fakes.libnvml nvitop -1`."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fakes.libnvml import FakeDriver

with tempfile.TemporaryDirectory() as directory, FakeDriver(Path(directory)) as driver:
    sys.exit(subprocess.run(sys.argv[1:] or ["nvitop", "-1"], env={**os.environ, **driver.env}, check=False).returncode)
