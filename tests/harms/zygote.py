"""A process that has loaded pytest and other people's packages, and nothing of the program: each run is a fork of it.

So a run costs what it runs, and not another start of Python and pytest. A script, so that the folder it is started in
is not on its path: one JSON request a line on stdin, one answer a line on stdout.
"""

import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import time
import traceback
from typing import Any

PACKAGES = (
    "bcrypt",
    "click",
    "h11",
    "h2.connection",
    "hypothesis",
    "kubernetes.client",
    "kubernetes.config.kube_config",
    "msgspec",
    "psutil",
    "pytest",
    "yaml",
)
"""What many runs import. Whatever starts a thread when it is imported does not belong here."""

OVERTIME = 124


def main() -> None:
    """Fork for every request, one after the other, until there is no one left to ask."""
    for name in PACKAGES:
        importlib.import_module(name)
    gc.freeze()
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.write(json.dumps(outcome(asked)) + "\n")
        sys.stdout.flush()


def outcome(asked: dict[str, Any]) -> int:
    """Exit code of one run, OVERTIME where it took longer than it may; what it started ends with it."""
    child = os.fork()
    if not child:
        run(asked)
    deadline = time.monotonic() + asked["seconds"]
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return OVERTIME
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)


def run(asked: dict[str, Any]) -> None:
    """In the child: be the process that `python -m pytest` would be in that folder, with that environment."""
    os.setpgid(0, 0)
    output = os.open(asked["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for number, target in enumerate((nothing, output, output)):
        os.dup2(target, number)
    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["folder"])
    sys.path.insert(0, asked["folder"])
    sys.dont_write_bytecode = True
    code = 70
    try:
        code = int(importlib.import_module("pytest").main(asked["args"]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
