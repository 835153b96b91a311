"""The files of a bundle that are no copies of the host's: each a part that may fail by itself."""

import json
import logging
import platform
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from gpuwatch import __version__
from gpuwatch.config import Config
from gpuwatch.diagnose.baseline.inventory import inventory
from gpuwatch.diagnose.bundling import allowed_facts as shared
from gpuwatch.diagnose.bundling.copying import Member
from gpuwatch.diagnose.bundling.redaction import Redactor
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.model.rfc3339 import rfc3339
from gpuwatch.model.view import Events

log = logging.getLogger(__name__)

MOST = 4 << 20
"""Bytes of one part; a longer text is cut at its beginning, a longer document left out."""


class Material(NamedTuple):
    """What the parts are made of."""

    facts: NodeFacts
    config: Config
    document: str
    screen: str
    events: Events | None
    hide: Redactor


class Part(NamedTuple):
    """`make` gives the text, or None where there is nothing to tell: `absent` says why."""

    path: str
    make: Callable[[Material], str | None]
    words: str
    absent: Callable[[Material], str] = lambda material: "there is none"


def parts(material: Material) -> Iterator[Member]:
    """Every part, or why it is not there."""
    for part in PARTS:
        try:
            text = part.make(material)
        except Exception as error:
            log.warning("the bundle lacks %s: %s", part.path, error, exc_info=True)
            yield Member(path=part.path, failed=f"{type(error).__name__}: it could not be made")
            continue
        if text is None:
            yield Member(path=part.path, failed=material.hide.text(part.absent(material)))
        else:
            yield _bounded(part.path, text.encode())


def _bounded(path: str, body: bytes) -> Member:
    if len(body) <= MOST:
        return Member(path=path, body=body)
    if path.endswith(".json"):
        return Member(path=path, failed=f"it is longer than {MOST} bytes")
    return Member(path=path, body=body[-MOST:], cut=f"only the last {MOST} bytes of {len(body)}")


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"


def _document(material: Material) -> str:
    return json.dumps(material.hide.plain(json.loads(material.document)), indent=1, ensure_ascii=False) + "\n"


def _view(material: Material) -> str | None:
    found = material.facts.view
    return _json(shared.view(found, material.hide)) if found else None


def _earlier(material: Material) -> str | None:
    found = material.facts.earlier
    return _json(shared.view(found, material.hide)) if found else None


def _events(material: Material) -> str | None:
    return _json(shared.events(material.events, material.hide)) if material.events else None


def _cluster(material: Material) -> str | None:
    found = material.facts.cluster
    return _json(shared.cluster(found, material.hide)) if found else None


def _exporters(material: Material) -> str | None:
    found = material.facts.exporters
    return None if found is None else _json(material.hide.plain(msgspec.to_builtins(found)))


def _active(material: Material) -> str | None:
    found = material.facts.active
    return None if found is None else _json(material.hide.plain(msgspec.to_builtins(found)))


def _kernel_log(material: Material) -> str | None:
    """As dmesg prints it."""
    if material.facts.kernel_log is None:
        return None
    stamps = ((f"[{line.at:12.6f}] " if line.at is not None else "", line.text) for line in material.facts.kernel_log)
    return material.hide.text("".join(f"{stamp}{text}\n" for stamp, text in stamps))


def _config(material: Material) -> str:
    import yaml

    return yaml.safe_dump(material.hide.plain(msgspec.to_builtins(material.config)), sort_keys=False)


def _versions(material: Material) -> str:
    machine = platform.uname()
    return _json(
        {
            "gpuwatch": __version__,
            "python": platform.python_version(),
            "machine": machine.machine,
            "system": f"{machine.system} {machine.release}",
            "made": rfc3339(material.facts.at),
            "node": {key: value for key, value in inventory(material.facts).items() if not key.startswith("gpu.")},
        }
    )


def _unread(section: str) -> Callable[[Material], str]:
    return lambda material: material.facts.unread.get(section, "it was not looked for")


PARTS: tuple[Part, ...] = (
    Part("diagnosis.txt", lambda material: material.hide.text(material.screen), "the diagnosis as the screen shows it"),
    Part("diagnosis.json", _document, "the same for programs: every check with its evidence"),
    Part("gpuwatch/versions.json", _versions, "versions of gpuwatch, kernel, driver and what else the node is made of"),
    Part("gpuwatch/config.yaml", _config, "the configuration of gpuwatch that was in force"),
    Part("gpuwatch/view.json", _view, "what the driver said of every GPU, who uses it, and what gpuwatch makes of it",
         _unread("view")),
    Part("gpuwatch/earlier.json", _earlier, "the same, a moment before", _unread("earlier")),
    Part("gpuwatch/cluster.json", _cluster, "the Node and its GPU pods, with known labels only", _unread("cluster")),
    Part("gpuwatch/exporters.json", _exporters, "other exporters of GPU metrics on the node", _unread("exporters")),
    Part("gpuwatch/active.json", _active, "what the GPUs did when they were put to work",
         lambda material: material.facts.unread.get("active", "the GPUs were not put to work: --active does that")),
    Part("gpuwatch/events.json", _events, "XIDs, findings and actions that an agent remembers",
         lambda material: "no agent was asked, or it did not answer"),
    Part("gpuwatch/kernel.log", _kernel_log, "kernel messages about GPUs since the last boot", _unread("kernel_log")),
)  # fmt: skip
