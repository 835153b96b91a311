"""`make fuzz`: each target for FUZZ_SECONDS under libFuzzer, guided by coverage; a table, and exit 1 after a find.

libFuzzer (atheris) ends its process, so each target has one of its own. What reaches new code is kept in .cache/fuzz,
so that the next run begins there; a find is saved beside it, and belongs into `corpus/` once it is mended.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import CORPUS, TARGETS

KEPT = Path(".cache/fuzz")
LONGEST_INPUT = 16_384
SLOWEST_SECONDS = 10
MEGABYTES = 2048

CHILD = """
import random
import sys
import atheris
with atheris.instrument_imports(include=["gpuwatch", "yaml", "h11", "h2", "hpack", "hyperframe"]):
    from tests.fuzz.targets import TARGETS

def mutate(data, size, seed):
    chance = random.Random(seed)
    other = target.reshape(data, chance) if chance.random() < 0.5 else None
    return atheris.Mutate(data, size) if other is None or len(other) > size else other

name = sys.argv.pop(1)
target = next(each for each in TARGETS if each.name == name)
atheris.Setup(sys.argv, target.run, custom_mutator=mutate)
atheris.Fuzz()
"""

STATISTICS = re.compile(r"#(\d+)\s+\w+\s+cov: (\d+) ft: (\d+) corp: (\d+)")
"""libFuzzer's progress: executions, edges, features, inputs of the corpus."""


def fuzz(name: str, seconds: int) -> tuple[str, ...]:
    """One row of the table; what libFuzzer wrote is in KEPT/NAME.log."""
    corpus, finds = KEPT / name / "corpus", KEPT / name / "finds"
    for folder in (corpus, finds):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(finds.iterdir())
    log = KEPT / f"{name}.log"
    options = {
        "max_total_time": seconds,
        "max_len": LONGEST_INPUT,
        "timeout": SLOWEST_SECONDS,
        "rss_limit_mb": MEGABYTES,
        "artifact_prefix": f"{finds}/",
    }
    arguments = [f"-{option}={value}" for option, value in options.items()]
    command = [sys.executable, "-c", CHILD, name, *arguments, str(corpus), str(CORPUS / name)]
    with log.open("wb") as output:
        subprocess.run(command, stdout=output, stderr=output, check=False)
    progress = STATISTICS.findall(log.read_text(errors="replace"))
    if not progress:
        raise SystemExit(f"{name} did not start; see {log}")
    first, last = progress[0], progress[-1]
    found = set(finds.iterdir()) - before
    return (name, last[0], first[1], last[1], last[3], str(len(found)), *sorted(map(str, found)))


def main() -> int:
    """Returns the exit code."""
    options = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the readers of foreign bytes.")
    options.add_argument("--seconds", type=int, default=600, help="for each target")
    options.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(each.name for each in TARGETS))
    asked = options.parse_args()
    if unknown := set(asked.targets) - {each.name for each in TARGETS}:
        options.error(f"no target {', '.join(sorted(unknown))}")
    form = "{:<18} {:>12} {:>12} {:>12} {:>8} {:>6}  {}"
    print(form.format("target", "executions", "edges before", "edges after", "corpus", "finds", ""), flush=True)
    finds = 0
    for target in TARGETS:
        if not asked.targets or target.name in asked.targets:
            row = fuzz(target.name, asked.seconds)
            finds += int(row[5])
            print(form.format(*row[:6], " ".join(row[6:])), flush=True)
    return 1 if finds else 0


sys.exit(main())
