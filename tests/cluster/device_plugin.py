"""How NVIDIA's device plugin reads its configuration: its own package, in a program that prints what it understood.

The module `deviceplugin/` beside this file pins it.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.gobuild import GoModule

READER = GoModule("device-plugin", Path(__file__).parent / "deviceplugin", {"deviceplugin": "."})


class Unread(Exception):
    """What the plugin says of a configuration that it does not start with."""


def understood(file: Path) -> dict[str, Any]:
    """The configuration as the plugin has it, and the strategy it takes from it. Raises Unread, NoBinaries."""
    command = [READER.get()["deviceplugin"], "--config-file", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise Unread(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
