"""What `./run` starts, with nothing but Python: unpacks the wheels that fit, then runs the campaign.

Wheels are unpacked, not installed: neither pip nor venv has to be there, and nothing of this machine's Python changes.
"""

import os
import re
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
GUARD = "\nfrom gpuwatch_campaign_guard import read_only\nread_only(globals())\n"


def fits(wheel: str) -> bool:
    """Whether this Python can use a wheel, by the file's name."""
    version, abi = wheel.removesuffix(".whl").split("-")[-3:-1]
    own = f"cp3{sys.version_info.minor}"
    oldest = [int(minor) for minor in re.findall(r"cp3(\d+)", version)]
    return (
        version.startswith("py")
        or own in version.split(".")
        or (abi == "abi3" and min(oldest) <= sys.version_info.minor)
    )


def main() -> None:
    """`campaign.py [OUT]`: unpack, then become the campaign."""
    wheels = [path for path in sorted((HERE / "wheels").glob("*.whl")) if fits(path.name)]
    if not any(path.name.startswith("grpcio-") for path in wheels):
        sys.exit(f"{HERE}/wheels has none for Python 3.{sys.version_info.minor}; use another Python, or pack again")
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "out").resolve()
    out.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix="gpuwatch-campaign-"))
    site = work / "site"
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    (site / "gpuwatch_campaign_guard.py").write_bytes((HERE / "tests/gpu/campaign/guard.py").read_bytes())
    with (site / "pynvml.py").open("a", encoding="utf-8") as pynvml:
        pynvml.write(GUARD)
    environment = os.environ | {
        "PYTHONPATH": f"{site}:{HERE}",
        "PYTHONPYCACHEPREFIX": str(work / "pycache"),
        "PYTHONUNBUFFERED": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "GPUWATCH_CAMPAIGN_REFUSED": str(work / "refused.log"),
    }
    command = [sys.executable, "-m", "tests.gpu.campaign", str(out), str(work)]
    os.chdir(HERE)
    os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    main()
