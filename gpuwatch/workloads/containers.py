"""Name, image and compose service of a container outside Kubernetes, from the state folder of its runtime.

Docker keeps `config.v2.json` of each container (moby, daemon/container/container.go). Podman has one `containers.json`
for all, beside it one for those of `--rm`, and labels in neither (containers/storage, containers.go; the metadata:
podman, libpod/storage.go). nerdctl copies labels to the OCI bundle's annotations (nerdctl, pkg/labels/labels.go).
Only root reads these files. Some hold the container's environment: only the members named here are decoded.
"""

import contextlib
import functools
import logging
import re
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from gpuwatch.host.tree import beneath
from gpuwatch.model.consent import plain_image
from gpuwatch.model.decoding import prepared
from gpuwatch.model.snapshot import UNREADABLE
from gpuwatch.model.workload import Container
from gpuwatch.storage.versioned_file import read_file

FILES = (
    "containers/{}/config.v2.json",
    "*-containers/*containers.json",
    "io.containerd.runtime.v2.task/*/{}/config.json",
)
"""In the state folders of Docker, Podman and containerd, by the container's id."""

MOST_BYTES = 1 << 20
MOST_CHARACTERS = 256

_ID = re.compile(r"[0-9a-f]{64}")
_log_once = functools.cache(logging.getLogger(__name__).info)


class _Config(msgspec.Struct, rename="pascal"):
    image: str = ""
    labels: dict[str, str] | None = None


class _State(msgspec.Struct, rename={"name": "Name", "config": "Config"}):
    """`name` and `config` are Docker's, `annotations` nerdctl's, the others Podman's."""

    name: str = ""
    config: _Config = msgspec.field(default_factory=_Config)
    id: str | None = None
    names: tuple[str, ...] | None = None
    metadata: str = "{}"
    annotations: dict[str, str] | None = None


def container(folders: tuple[str, ...], ident: str) -> Container | None:
    """The container with this id (64 hex digits); None: no state folder names it. Links cannot leave a folder."""
    for folder, pattern in product(folders if _ID.fullmatch(ident) else (), FILES):
        for file in beneath(Path(folder)).glob(pattern.format(ident)):
            with contextlib.suppress(OSError, *UNREADABLE):
                if (found := named(read_file(file, MOST_BYTES)[1], ident)) is not None:
                    return found
    _log_once("a container outside pods goes by its id: no readable file of sources.containers (%s) names it", folders)
    return None


def named(text: bytes, ident: str) -> Container | None:
    """The container in the text of one of FILES; None: it has no name there. Raises one of UNREADABLE."""
    states = msgspec.json.decode(text, type=prepared(_State | list[_State]))
    rows = states if isinstance(states, list) else (states,)
    state = next((row for row in rows if row.id in (None, ident)), _State())
    labels = state.config.labels or state.annotations or {}
    name = state.name.removeprefix("/") or next(iter(state.names or ()), "") or labels.get("nerdctl/name", "")
    metadata = msgspec.json.decode(state.metadata, type=prepared(dict[str, Any]))
    image = state.config.image or str(metadata.get("image-name", ""))
    compose = (labels.get(f"com.docker.compose.{each}", "") for each in ("project", "service"))
    texts = [text[:MOST_CHARACTERS] or None for text in (plain_image(image), *compose)]
    return Container(name[:MOST_CHARACTERS], *texts) if name else None
