"""Makes a Prometheus database out of the history: once for each state of the sources, in a folder outside the tree."""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

import dashboards.history
import gpuwatch
from dashboards.history.fleet import BEGIN, CLUSTERS, END, STEP
from dashboards.history.play import samples
from dashboards.history.server import prometheus

ROOT = Path(__file__).parents[2]
RULES = ROOT / "alerts" / "gpuwatch.rules.yaml"
"""Recording rules whose series dashboards may use."""

KEPT_SECONDS = 7 * 86_400.0
"""How long blocks stay that other sources than today's have made, and what a killed Prometheus has left."""


def cache() -> Path:
    """Where everything that is made once for the dashboards stays."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuwatch"


def get() -> Path:
    """The folder of blocks that fits the sources as they are; built where there is none (half a minute)."""
    place = cache() / f"history-{_fingerprint()}"
    place.parent.mkdir(parents=True, exist_ok=True)
    with _alone(place.with_suffix(".lock")):
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=place.parent, prefix="history-") as work:
                build(Path(work) / "blocks")
                (Path(work) / "blocks").rename(place)
            _forget(place.parent)
    return place


def _forget(place: Path) -> None:
    """Remove what has not been made or used for long."""
    for folder in (found for kind in ("history", "prometheus") for found in place.glob(f"{kind}-*")):
        if folder.is_dir() and time.time() - folder.stat().st_mtime > KEPT_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def build(place: Path) -> None:
    """Play the fleet and leave the blocks in `place`, a folder that does not exist yet."""
    with tempfile.TemporaryDirectory(dir=place.parent, prefix="pages-") as work:
        pages = _played(Path(work))
        everything = Path(work) / "all.om"
        with everything.open("wb") as file:
            for page in pages:
                with page.open("rb") as part:
                    shutil.copyfileobj(part, file, 1 << 20)
                page.unlink()
            file.write(b"# EOF\n")
        _promtool("openmetrics", str(everything), str(place))
    if RULES.exists():
        _record(place)


def _record(place: Path) -> None:
    """Add what the recording rules make of the rest. promtool's rules read what is in the database already:
    those that read others come in a pass of their own after them.
    """
    times = [f"--start={BEGIN:.0f}", f"--end={END:.0f}", f"--eval-interval={STEP:.0f}s"]
    for groups in _passes():
        file = place.with_name("rules.yaml")
        file.write_text(yaml.safe_dump({"groups": groups}))
        with prometheus(place) as url:
            # A group's moments follow from the path as it is given: the same for each pass and each history.
            _promtool("rules", f"--url={url}", *times, f"--output-dir={place}", file.name, folder=file.parent)


def _passes() -> Iterator[list[dict[str, Any]]]:
    """The groups, each time with the rules that read nothing which is still missing. A rule may read its own record."""
    groups = yaml.safe_load(RULES.read_text())["groups"]
    waiting = [(group, rule) for group in groups for rule in group["rules"] if "record" in rule]
    while waiting:
        missing = {rule["record"] for _, rule in waiting}
        begun = missing - {rule["record"] for _, rule in waiting if rule["record"] not in _reads(rule)}
        ready = [(g, rule) for g, rule in waiting if not _reads(rule) & missing - ({rule["record"]} & begun)]
        yield [{**group, "rules": rules} for group in groups if (rules := [rule for g, rule in ready if g is group])]
        waiting = [each for each in waiting if each not in ready]


def _reads(rule: dict[str, Any]) -> set[str]:
    return set(re.findall(r"\w+:\w+:\w+", rule["expr"]))


def _played(work: Path) -> list[Path]:
    """The pages of each cluster, each played by a process of its own, as that takes long."""
    files = {cluster: work / f"{cluster}.om" for cluster in CLUSTERS}
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), *sys.path))}
    with contextlib.ExitStack() as running:
        commands = ([sys.executable, "-m", "dashboards.history.blocks", c, str(file)] for c, file in files.items())
        processes = [running.enter_context(subprocess.Popen(command, env=env)) for command in commands]
    if any(process.returncode for process in processes):
        raise RuntimeError("the history could not be played; what was wrong stands above")
    return list(files.values())


def _promtool(kind: str, *arguments: str, folder: Path | None = None) -> None:
    command = ["promtool", "tsdb", "create-blocks-from", kind, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {(done.stderr or done.stdout)[-2000:]}")


def _fingerprint() -> str:
    """Of everything that the history is made from."""
    folders = (Path(str(gpuwatch.__file__)).parent, Path(str(dashboards.history.__file__)).parent)
    files = [file for folder in folders for kind in ("*.py", "*.yaml", "*.json") for file in sorted(folder.rglob(kind))]
    seen = hashlib.sha256()
    for file in [*files, RULES]:
        if file.exists():
            seen.update(str(file).encode())
            seen.update(file.read_bytes())
    return seen.hexdigest()[:16]


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Only one process at a time builds; the kernel frees the lock when one dies."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main(cluster: str, file: str) -> None:
    """Write the pages of one cluster."""
    with Path(file).open("wb") as output:
        output.writelines(samples(cluster))


if __name__ == "__main__":
    main(*sys.argv[1:])
