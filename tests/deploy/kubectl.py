"""kubectl with somebody's kubeconfig."""

import subprocess
from pathlib import Path

from tests.deploy.tools import kubectl


class Kubectl:
    """Runs commands; `as_user` impersonates."""

    def __init__(self, kubeconfig: Path) -> None:
        self._command = (kubectl(), f"--kubeconfig={kubeconfig}")

    def run(self, *args: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """What became of it, good or bad."""
        command = [*self._command, *args]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=60)

    def __call__(self, *args: str | Path, stdin: str = "") -> str:
        """What it printed; AssertionError with what it complained of."""
        done = self.run(*args, stdin=stdin)
        assert done.returncode == 0, f"{' '.join(map(str, args))}: {done.stderr}{done.stdout}"
        return done.stdout
