"""Asks for known vulnerabilities of all that is shipped: `python -m deploy.audit`.

Reads the locks, as pip-audit does without installing anything. Ends with 1 when a package has a vulnerability. Where no
index of vulnerabilities can be reached it says so, for the packages that were not looked up: silence is not safety.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

TREE = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.lock", "requirements-build.lock")
OPTIONS = ("--require-hashes", "--disable-pip", "--format", "json", "--progress-spinner", "off")


def summary(dependencies: list[dict[str, Any]]) -> tuple[list[str], bool]:
    """Lines about pip-audit's rows (name, version, vulns or skip_reason), and whether one is vulnerable."""
    skipped = [row for row in dependencies if "skip_reason" in row]
    vulnerable = [(row, each) for row in dependencies for each in row.get("vulns", ())]
    lines = [f"{len(dependencies) - len(skipped)} packages looked up, {len(vulnerable)} known vulnerabilities"]
    for row, each in vulnerable:
        mended = f"mended in {', '.join(each['fix_versions'])}" if each.get("fix_versions") else "not mended yet"
        lines.append(f"{row['name']} {row['version']}: {each['id']}, {mended}")
    if skipped:
        lines.append(f"NOT looked up: {len(skipped)} packages; {skipped[0]['name']}: {skipped[0]['skip_reason']}")
    return lines, bool(vulnerable)


def main() -> None:
    """Install pip-audit beside the project, ask it about each lock, and print the summary."""
    bad = False
    with TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = f"{folder}/bin/python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "pip-audit"], check=True)
        for lock in LOCKS:
            asked = [python, "-m", "pip_audit", *OPTIONS, "--requirement", str(TREE / lock)]
            done = subprocess.run(asked, capture_output=True, text=True, check=False)
            try:
                lines, vulnerable = summary(msgspec.json.decode(done.stdout)["dependencies"])
            except (msgspec.DecodeError, KeyError):
                lines, vulnerable = (
                    [f"NOT looked up: pip-audit ended with {done.returncode}; {done.stderr[-500:]}"],
                    False,
                )
            bad |= vulnerable
            sys.stdout.writelines(f"{lock}: {line}\n" for line in lines)
    sys.exit(bad)


if __name__ == "__main__":
    main()
