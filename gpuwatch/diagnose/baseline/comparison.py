"""Two diagnoses side by side: which checks came to another result, and what the nodes are made of differently.

What changes from minute to minute is no difference: the words of a check that passes, and a check that only waits for
another one.
"""

from pathlib import Path
from typing import Literal

import msgspec

from gpuwatch.diagnose.model import CheckResult, CheckStatus
from gpuwatch.model.errors import UsageError
from gpuwatch.model.snapshot import Record

API_VERSION = "gpuwatch/v1"
KIND = "Diagnosis"
HINT = "make one with `gpuwatch diagnose -o json > OTHER.json`"


class Document(Record, frozen=True, kw_only=True):
    """What `gpuwatch diagnose -o json` prints, as far as it is compared."""

    apiVersion: str
    kind: str
    items: tuple[CheckResult, ...]
    node: str | None = None
    at: str | None = None
    level: str | None = None
    inventory: dict[str, str] = {}


class Difference(Record, frozen=True, kw_only=True, omit_defaults=False):
    """One thing that is not the same. `of`: check (`name` is its id) or inventory (its key). None: it is not there."""

    of: Literal["check", "inventory"]
    name: str
    title: str = ""
    here: str | None = None
    there: str | None = None


class _Labelled(msgspec.Struct):
    """What says whether it is a diagnosis at all."""

    apiVersion: str | None = None
    kind: str | None = None


def read_document(path: Path) -> Document:
    """A file with a diagnosis.

    Raises:
        UsageError: it cannot be read, or is something else.
    """
    try:
        body = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or str(error), "check --compare") from None
    return document(body, str(path))


def document(body: bytes | str, origin: str) -> Document:
    """A diagnosis in JSON; `origin` names it in errors. Raises as `read_document`."""
    try:
        label = msgspec.json.decode(body, type=_Labelled)
    except msgspec.ValidationError as error:
        raise UsageError(f"{origin} is no diagnosis", str(error), HINT) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{origin} is not JSON", str(error), HINT) from None
    if label.apiVersion != API_VERSION:
        said = label.apiVersion or "none"
        raise UsageError(f"{origin} is no diagnosis", f"apiVersion is {said}, not {API_VERSION}", HINT)
    if label.kind != KIND:
        raise UsageError(f"{origin} is no diagnosis", f"it is a {label.kind or 'document without a kind'}", HINT)
    try:
        return msgspec.json.decode(body, type=Document)
    except msgspec.ValidationError as error:
        raise UsageError(f"{origin} is no diagnosis of this gpuwatch", str(error), HINT) from None


def compare(here: Document, there: Document) -> tuple[Difference, ...]:
    """Differences: checks in the order of the table, then what the nodes are made of."""
    return (*_checks(here.items, there.items), *_inventories(here.inventory, there.inventory))


def _checks(here: tuple[CheckResult, ...], there: tuple[CheckResult, ...]) -> list[Difference]:
    """Of checks that both were asked: a quick diagnosis says nothing of what only a full one looks at."""
    others = {result.id: result for result in there}
    pairs = [(result, others[result.id]) for result in here if result.id in others]
    return [
        Difference(of="check", name=ours.id, title=ours.title, here=_words(ours), there=_words(other))
        for ours, other in pairs
        if _substance(ours) != _substance(other)
    ]


def _substance(result: CheckResult) -> tuple[CheckStatus, str]:
    """What of a result counts."""
    if result.blocked_by is not None:
        return result.result, result.blocked_by
    return result.result, "" if result.result is CheckStatus.PASS else result.message


def _words(result: CheckResult) -> str:
    return f"{result.result}: {result.message}" if result.message else result.result.value


def _inventories(here: dict[str, str], there: dict[str, str]) -> list[Difference]:
    keys = dict.fromkeys((*here, *there))
    return [
        Difference(of="inventory", name=key, here=here.get(key), there=there.get(key))
        for key in keys
        if here.get(key) != there.get(key)
    ]
