"""README.txt of a bundle: for whoever opens it, with gpuwatch or without."""

from collections.abc import Iterable, Mapping

from gpuwatch import __version__
from gpuwatch.diagnose.bundling.copying import Member
from gpuwatch.diagnose.bundling.parts import PARTS
from gpuwatch.diagnose.facts import NodeFacts
from gpuwatch.model.rfc3339 import rfc3339

TEXT = """\
Support bundle of {node}, made by gpuwatch {version} at {at}.

Start with diagnosis.txt: the first failure on top is where to begin.

WHAT IS IN IT
{parts}
  gpuwatch/host.json       what a copy of files cannot show: numbers of device files, limits

{folders}

JUDGE IT AGAIN
  tar xzf THIS_FILE
  gpuwatch diagnose --root {top}

WHAT IS LEFT OUT ON PURPOSE
Command lines and environments of processes; values of environment variables in container configuration; registry
credentials; kubeconfigs, tokens, keys, certificates; labels and annotations of others; traffic of the node. Only known
files and known keys of them are taken. What looks like a secret all the same reads [redacted].
Names of this node, its pods and users, serial numbers and UUIDs of its GPUs are in it: a support case needs them.

WHAT COULD NOT BE HAD
{missing}
"""

FOLDERS = """\
All else ({folders}) are copies of the node's files, under the paths
they have there. Device files, programs and libraries are empty: that they are there is all that matters."""


def readme(facts: NodeFacts, top: str, members: Iterable[Member], missing: Mapping[str, str]) -> str:
    """The text."""
    there = {member.path for member in members}
    folders = sorted({path.partition("/")[0] for path in there if "/" in path} - {"gpuwatch"})
    return TEXT.format(
        node=facts.node or "a node",
        version=__version__,
        at=rfc3339(facts.at),
        parts="\n".join(f"  {part.path:<24} {part.words}" for part in PARTS if part.path in there),
        folders=FOLDERS.format(folders=", ".join(folders)) if folders else "No file of the node could be copied.",
        top=top,
        missing="\n".join(f"  {path}: {why}" for path, why in missing.items()) or "  Nothing.",
    )
