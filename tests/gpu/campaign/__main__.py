"""`python -m tests.gpu.campaign OUT WORK`: the stages in order, each a process with a deadline; a report after each.

A stage that fails, hangs or is cut off costs its own lines only. At its deadline it gets SIGTERM and some seconds; what
is in a call of the driver then is left alone, as killing it can wedge the GPU, and the report names it.
"""

import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.gpu.campaign.report import Findings, StageResult, write

TOTAL_SECONDS = 530.0
"""Under nine minutes, with the unpacking before and the packing after."""

GRACE_SECONDS = 5.0


class StageRow(NamedTuple):
    """A stage and how long it may take."""

    name: str
    seconds: float


STAGES = (
    StageRow("machine", 15),
    StageRow("fields", 50),
    StageRow("nvidia_smi", 40),
    StageRow("activity", 95),
    StageRow("captures", 40),
    StageRow("attribution", 35),
    StageRow("tests", 75),
    StageRow("diagnose", 60),
    StageRow("exporters", 65),
    StageRow("tuner", 30),
)
"""What costs little and tells most comes first."""


def main() -> int:
    """Every stage once; 0 when all of them ended by themselves and the guard refused nothing."""
    out, work = Path(sys.argv[1]), Path(sys.argv[2])
    scale = float(os.environ.get("GPUWATCH_CAMPAIGN_SCALE", "1"))
    wanted = [name for name in os.environ.get("GPUWATCH_CAMPAIGN_STAGES", "").split(",") if name]
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        return _run_all(out, work, scale, wanted)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _run_all(out: Path, work: Path, scale: float, wanted: list[str]) -> int:
    started, began = time.time(), time.monotonic()
    (work / "logs").mkdir()
    (work / "captures").mkdir()
    results: list[StageResult] = []
    for row in STAGES:
        if wanted and row.name not in wanted:
            continue
        left = TOTAL_SECONDS - (time.monotonic() - began) - GRACE_SECONDS
        if left < GRACE_SECONDS:
            results.append(StageResult(row.name, "not begun: no time was left", 0.0, ()))
            continue
        print(f"{time.monotonic() - began:6.1f} s  {row.name}", flush=True)
        results.append(run(row.name, work, min(row.seconds * scale, left)))
        write(out, results, started, complete=False)
        _pack(out, work)
    refused = work / "refused.log"
    findings = Findings(work / "guard.jsonl")
    calls = refused.read_text().splitlines() if refused.exists() else []
    findings.add(
        "calls of NVML that could change a GPU", 0, len(calls), "differs" if calls else "pass", "; ".join(calls[:5])
    )
    results.append(StageResult("guard", "done", 0.0, findings.read()))
    write(out, results, started, complete=True)
    failed = [stage.name for stage in results if stage.outcome != "done"]
    print(
        f"{time.monotonic() - began:6.1f} s  {out / 'report.md'}; "
        + (f"not done: {', '.join(failed)}" if failed else "all stages done")
    )
    return 1 if failed or calls else 0


def run(name: str, work: Path, seconds: float) -> StageResult:
    """One stage in a process group of its own."""
    began = time.monotonic()
    with (work / "logs" / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.gpu.campaign.stages", name, str(work)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(seconds)
            outcome = "done" if status == 0 else f"failed: status {status}, see logs/{name}.log"
        except subprocess.TimeoutExpired:
            outcome = f"cut off at its deadline of {seconds:.0f} s"
            _signal(process.pid)
            try:
                process.wait(GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                outcome += f"; process {process.pid} does not end and was left alone"
        finally:
            _signal(process.pid)  # what it started and did not end, also when the campaign itself is ended
    return StageResult(name, outcome, round(time.monotonic() - began, 1), Findings(work / f"{name}.jsonl").read())


def _signal(group: int) -> None:
    try:
        os.killpg(group, signal.SIGTERM)
    except (ProcessLookupError, PermissionError):
        return


def _pack(out: Path, work: Path) -> None:
    """fields.json as it is; captures and logs as one archive each."""
    for name in ("captures", "logs"):
        with tarfile.open(out / f".{name}.tgz", "w:gz") as archive:
            archive.add(work / name, arcname=name)
        (out / f".{name}.tgz").replace(out / f"{name}.tgz")
    if (work / "fields.json").exists():
        shutil.copyfile(work / "fields.json", out / "fields.json")


if __name__ == "__main__":
    sys.exit(main())
