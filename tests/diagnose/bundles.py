"""Bundles of test hosts: made as the command makes them, taken apart with nothing but tar."""

import subprocess
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.cli.diagnose_document import document
from gpuwatch.cli.document import to_json
from gpuwatch.diagnose.bundle import Contents, Written, write_bundle
from gpuwatch.diagnose.facts import Facts
from gpuwatch.diagnose.places import Places
from tests.diagnose.hosts import Host


def contents(host: Host, **more: Any) -> Contents:
    """All there is of a host, with its diagnosis."""
    facts = more.pop("facts", None) or host.facts()
    diagnosis = host.diagnose()
    texts = {
        "document": to_json(document(diagnosis, facts, "full")),
        "screen": "\n".join(f"{r.id} {r.result} {r.message} {r.evidence}" for r in diagnosis.results),
    }
    return Contents(facts=facts, places=Places.tree(host.root), config=host.config, **texts | more)


def bundle(host: Host, target: Path, **more: Any) -> Written:
    """Write one."""
    how = {name: more.pop(name) for name in ("limit", "seconds") if name in more}
    return write_bundle(target, contents(host, **more), **how)


def unpacked(target: Path, folder: Path) -> Path:
    """Take it apart as a stranger would; the folder that all is in."""
    folder.mkdir(parents=True)
    subprocess.run(["tar", "xzf", str(target), "-C", str(folder)], check=True)
    (top,) = folder.iterdir()
    return top


def again(host: Host, top: Path) -> Host:
    """The host that the bundle shows, as a diagnosis with --root would."""
    copy = Host.__new__(Host)
    copy.__dict__.update(host.__dict__)
    copy.root = top
    copy.unread = {}
    return copy


def compared(facts: Facts) -> dict[str, Any]:
    """What a reading of the copy must give again."""
    return {name: value for name, value in msgspec.structs.asdict(facts).items() if name not in ("root", "at")}
