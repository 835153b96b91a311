"""Bundles of test hosts: made as the command makes them, taken apart with nothing but tar."""

import subprocess
from pathlib import Path
from typing import Any

from gpuwatch.cli.console.document import to_json
from gpuwatch.cli.diagnose.document import document
from gpuwatch.diagnose.bundling.allowed_facts import BundleContents, facts_redactor, parts
from gpuwatch.diagnose.bundling.allowed_files import copied
from gpuwatch.diagnose.bundling.bundle import WrittenBundle, write_bundle
from gpuwatch.diagnose.places import Places
from tests.diagnose.hosts import Host


def contents(host: Host, **more: Any) -> BundleContents:
    """All there is of a host, with its diagnosis."""
    facts = more.pop("facts", None) or host.facts()
    diagnosis = host.diagnose()
    texts = {
        "document": to_json(document(diagnosis, facts, "full")),
        "screen": "\n".join(f"{r.id} {r.result} {r.message} {r.evidence}" for r in diagnosis.results),
    }
    return BundleContents(facts=facts, places=Places.tree(host.root), config=host.config, **texts | more)


def bundle(host: Host, target: Path, **more: Any) -> WrittenBundle:
    """Write one."""
    how = {"limit": more.pop("limit")} if "limit" in more else {}
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


def copied_here(host: Host, folder: Path) -> Host:
    """What a bundle would show of the host, without process and archive: quick enough to do it often."""
    made = contents(host)
    redactor = facts_redactor(made.facts)
    own = list(parts(made._replace(events=None), redactor))
    for member in [*own, *copied(made.places)]:
        target = folder / member.path
        if not member.failed and not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(member.body)
    return again(host, folder)
