"""The stages that run gpuwatch's own commands, and the tests, as a person would."""

import json
import os
import platform
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from gpuwatch.collect.nvml.library import ask, open_library
from gpuwatch.collect.reader.driver import versions
from tests.gpu.campaign.activity import idle_gpu, load
from tests.gpu.campaign.reads import open_driver
from tests.gpu.campaign.report import Findings, Status

COMMAND_SECONDS = 60
CAPTURE = ("--samples", os.environ.get("GPUWATCH_CAMPAIGN_SAMPLES", "6"), "--interval", "1", "--mask")


def gpuwatch(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """One command; its streams and status go to the stage's log, too."""
    command = [sys.executable, "-m", "gpuwatch", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS, check=False
    )
    print("$ gpuwatch", *arguments, f"-> {done.returncode}\n{done.stdout}\n{done.stderr}", flush=True)
    return done


def machine(work: Path, findings: Findings) -> None:
    """What this machine is."""
    nvml = open_library()
    ask(nvml, "nvmlInit")
    driver = versions(nvml)
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    effective = re.search(r"CapEff:\s*(\w+)", status)
    facts = {
        "driver": driver.version,
        "NVML": driver.nvml,
        "CUDA of the driver": driver.cuda,
        "kernel": platform.release(),
        "Python": platform.python_version(),
        "processors": os.cpu_count(),
        "user": f"uid {os.getuid()}, capabilities {effective[1] if effective else 'unknown'}",
        "/proc/driver/nvidia": Path("/proc/driver/nvidia").is_dir(),
        "GPUs": ", ".join(f"{reader.identity.name} ({reader.identity.pci_bus_id})" for reader in open_driver()),
    }
    for what, found in facts.items():
        findings.add(what, "known", found, "pass" if found not in (None, "") else "unknown")


def captures(work: Path, findings: Findings) -> None:
    """A recording of the idle machine and one under load; both replay."""
    folder = work / "captures"
    _capture(folder / "idle.capture", findings)
    reader = idle_gpu(open_driver())
    if reader is None:
        findings.add("capture under load", "a GPU without processes", "none", "unknown")
        return
    with load("fp32", reader.identity.uuid, COMMAND_SECONDS) as running:
        try:
            running.ready()
        except RuntimeError as error:
            findings.add("capture under load", "the load runs", str(error), "unknown")
            return
        _capture(folder / "load.capture", findings)


def _capture(file: Path, findings: Findings) -> None:
    done = gpuwatch("capture", str(file), *CAPTURE)
    findings.add(f"{file.name}: exit status", 0, done.returncode, "pass" if done.returncode == 0 else "differs")
    shown = gpuwatch("--source", f"capture:{file}", "status", "-o", "json")
    items = json.loads(shown.stdout).get("items", []) if shown.stdout else []
    findings.add(
        f"{file.name}: replayed",
        "one item a GPU",
        f"{len(items)}, status {shown.returncode}",
        "pass" if items else "differs",
    )


def tests(work: Path, findings: Findings) -> None:
    """What `make test-gpu` runs."""
    results = work / "tests.xml"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "gpu",
        "tests/gpu",
        "-p",
        "no:cacheprovider",
        f"--junitxml={results}",
    ]
    subprocess.run(command, check=False)
    for case in ET.parse(results).getroot().iter("testcase"):
        bad = [child for child in case if child.tag in ("failure", "error", "skipped")]
        measured = bad[0].tag if bad else "passed"
        status: Status = "pass" if not bad else "unknown" if measured == "skipped" else "differs"
        note = (bad[0].get("message") or "")[:250] if bad else ""
        findings.add(f"{case.get('classname')}.{case.get('name')}", "passed", measured, status, note)


def diagnose(work: Path, findings: Findings) -> None:
    """Without and with work on the GPUs; a healthy machine has no failure of the driver, the GPUs and the work."""
    for name, arguments in {"diagnose": (), "diagnose --active": ("--active", "--stage", "functional")}.items():
        done = gpuwatch("diagnose", "-o", "json", *arguments)
        try:
            document = json.loads(done.stdout)
        except ValueError:
            findings.add(name, "a document", f"status {done.returncode}", "differs", done.stderr[:250])
            continue
        results = [item["result"] for item in document["items"]]
        counts = ", ".join(f"{results.count(result)} {result}" for result in sorted(set(results)))
        findings.add(name, "a verdict", document["verdict"], "pass" if done.returncode in (0, 3) else "differs", counts)
        for item in document["items"]:
            functional = item["stage"] == "functional" and bool(arguments)
            if item["result"] in ("fail", "warn", "unknown") or functional:
                status: Status = (
                    "pass" if item["result"] == "pass" else "differs" if item["result"] == "fail" else "unknown"
                )
                findings.add(
                    f"{name}: {item['id']}", "pass", item["result"], status, str(item.get("message", ""))[:250]
                )
