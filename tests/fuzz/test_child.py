"""`make fuzz` starts the target it was asked for. libFuzzer itself is not among the tests' packages: a module in its
place calls the target once and prints libFuzzer's line of progress.
"""

import os
import subprocess
import sys
from pathlib import Path

ATHERIS = """
import contextlib
instrument_imports = lambda include: contextlib.nullcontext()
def Setup(arguments, call, custom_mutator):
    print("options", *arguments[1:])
    call(custom_mutator(b"{\\"a\\": 1}", 4096, 1))
def Fuzz():
    print("#1\tINITED cov: 2 ft: 3 corp: 4/5b")
"""


def test_any_target_is_started_under_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "atheris.py").write_text(ATHERIS)
    path = os.pathsep.join((str(Path(__file__).parents[2]), str(tmp_path)))
    command = [sys.executable, "-m", "tests.fuzz", "--seconds", "1", "actuation"]  # not the first of the table
    environment = os.environ | {"PYTHONPATH": path}
    ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    log = (tmp_path / ".cache/fuzz/actuation.log").read_text()
    assert "options -max_total_time=1" in log
    assert str(Path(__file__).parent / "corpus/actuation") in log
