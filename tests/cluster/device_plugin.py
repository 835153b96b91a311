"""How NVIDIA's device plugin reads its configuration: its own package, in a program that prints what it understood.

The module `deviceplugin/` beside this file pins it. It is built once, in about a minute, and kept in
`~/.cache/gpuwatch/device-plugin-HASH`, where HASH covers all that the build depends on.
"""

import hashlib
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.cluster.binaries import NoBinaries, cache, find_go, locked, say

SOURCE = Path(__file__).parent / "deviceplugin"
FILES = ("go.mod", "go.sum", "main.go")
BUILD = ("build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w")
ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-modcacherw"}


class Unread(Exception):
    """What the plugin says of a configuration that it does not start with."""


def understood(file: Path) -> dict[str, Any]:
    """The configuration as the plugin has it, and the strategy it takes from it. Raises Unread, NoBinaries."""
    command = [reader(), "--config-file", file]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    if done.returncode:
        raise Unread(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def reader() -> Path:
    """The program; built where there is none. Raises NoBinaries."""
    seen = hashlib.sha256(repr((BUILD, ENVIRONMENT)).encode())
    for name in FILES:
        seen.update((SOURCE / name).read_bytes())
    program = cache() / f"device-plugin-{seen.hexdigest()[:12]}"
    if not program.exists():
        cache().mkdir(parents=True, exist_ok=True)
        with locked(cache() / "device-plugin.lock"):
            if not program.exists():  # else another process has built it while this one waited
                build(program)
    return program


def build(program: Path) -> None:
    """Fetch, compile, and put the program in place with one rename; what Go caches goes when that is done."""
    work = cache() / "device-plugin-build"
    go = find_go(work)
    say(f"building a reader of the device plugin's configuration with {go}, once, for {program}; a minute")
    caches = {"GOCACHE": str(work / "compiled"), "GOMODCACHE": str(work / "modules")}
    command = [go, *BUILD, f"-o={work / 'reader'}", "."]
    env = {**os.environ, **ENVIRONMENT, **caches}
    done = subprocess.run(command, cwd=SOURCE, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoBinaries(f"the reader of the device plugin's configuration could not be built: {done.stderr[-2000:]}")
    (work / "reader").rename(program)
    shutil.rmtree(work, ignore_errors=True)
