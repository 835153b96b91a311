"""`--gpu 0,3`: which of the node's GPUs are meant."""

from collections.abc import Collection
from typing import TYPE_CHECKING

from gpuwatch.model.errors import UsageError
from gpuwatch.model.pci import pci_key

if TYPE_CHECKING:
    from gpuwatch.model.snapshot import Identity
    from gpuwatch.model.view import View


def find_gpu(view: "View", text: str) -> "Identity":
    """The GPU named by index, UUID (or its beginning) or PCI address.

    Raises:
        UsageError: no GPU or several go by that name.
    """
    known = [status.identity for status in view.snapshot.statuses]
    found = [identity for identity in known if _goes_by(identity, text.strip())]
    if len(found) == 1:
        return found[0]
    indices = ", ".join(str(identity.index) for identity in known) or "none"
    what = f"no GPU goes by {text!r}" if not found else f"{len(found)} GPUs go by {text!r}"
    raise UsageError(what, f"this node has GPUs {indices}", "see gpuwatch get gpus -o wide")


def chosen(view: "View", text: str | None) -> Collection[str] | None:
    """UUIDs of a comma-separated list; None = all."""
    return None if text is None else {find_gpu(view, part).uuid for part in text.split(",")}


def _goes_by(identity: "Identity", text: str) -> bool:
    if text.isdigit() and len(text) < 5:
        return identity.index == int(text)
    key = pci_key(text)
    if key is not None:
        return pci_key(identity.pci_bus_id) == key
    return len(text) > 4 and identity.uuid.lower().startswith(text.lower())
