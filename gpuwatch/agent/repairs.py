"""A person's word that a GPU was repaired: said by the command line, kept in the store, heard by the agent.

For machines on which nothing else can tell: no energy counter, no recovery action, no reboot; or a GPU taken out.
"""

from collections.abc import Collection

import msgspec

from gpuwatch.model.event import ActionEvent, Result
from gpuwatch.storage.store import Store

NAME = "repaired"
KEPT = 64


def repaired_at(store: Store) -> dict[str, float]:
    """GPU uuid, or `node` -> unix time at which somebody said so."""
    try:
        return msgspec.json.decode(store.memory(NAME) or b"{}", type=dict[str, float])
    except msgspec.MsgspecError:  # it is somebody's word, or it is nothing
        return {}


def mark_repaired(store: Store, subjects: Collection[str], at: float, evidence: Collection[str]) -> bool:
    """Keep the word, and a line among the actions; False when the store cannot be written, and its `trouble` says why.

    `evidence`: keys of the findings that are meant.
    """
    newest = sorted((repaired_at(store) | dict.fromkeys(subjects, at)).items(), key=lambda pair: pair[1])[-KEPT:]
    store.remember(NAME, msgspec.json.encode(dict(newest)))
    for subject in subjects:
        store.record(
            ActionEvent(
                at=at,
                actor="operator",
                action="repaired",
                target=subject if subject == "node" else f"gpu/{subject}",
                result=Result.DONE,
                why="a person said so",
                evidence=tuple(evidence),
            )
        )
    return store.flush()
