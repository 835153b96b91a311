"""One stage in a process of its own: `python -m tests.gpu.campaign.stages NAME WORK`."""

import sys
from collections.abc import Callable
from pathlib import Path

from tests.gpu.campaign.activity import activity
from tests.gpu.campaign.commands import captures, diagnose, machine, tests
from tests.gpu.campaign.reads import fields
from tests.gpu.campaign.report import Findings
from tests.gpu.campaign.services import attribution, exporters, tuner
from tests.gpu.campaign.smi import nvidia_smi

FUNCTIONS: dict[str, Callable[[Path, Findings], None]] = {
    "machine": machine,
    "fields": fields,
    "nvidia_smi": nvidia_smi,
    "activity": activity,
    "captures": captures,
    "attribution": attribution,
    "tests": tests,
    "diagnose": diagnose,
    "exporters": exporters,
    "tuner": tuner,
}

if __name__ == "__main__":
    name, work = sys.argv[1], Path(sys.argv[2])
    FUNCTIONS[name](work, Findings(work / f"{name}.jsonl"))
