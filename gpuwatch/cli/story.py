"""The demo's story: what happens to the simulated node, in plain words, and where to look at it."""

from typing import Any, NamedTuple


class Chapter(NamedTuple):
    """`actions` are those of a scenario's timeline; `look` are commands to try while it lasts."""

    title: str
    words: str
    actions: tuple[dict[str, Any], ...] = ()
    look: tuple[str, ...] = ()


STORY = (
    Chapter(
        "A node at work",
        "Eight H100: four train, three serve or wait, one is free. gpuwatch knows which pod is on which GPU.",
        look=("status", "top", "get pods"),
    ),
    Chapter(
        "A program makes a mistake",
        "The program on GPU 4 reads memory that is not its own. The driver says XID 31 and stops it. "
        "The GPU is well: such XIDs are counted and shown, never held against the hardware.",
        ({"do": "xid", "gpu": 4, "xid": 31}, {"do": "xid", "gpu": 4, "xid": 43, "at": 0.5}),
        ("xid explain 31", "events", "get xids"),
    ),
    Chapter(
        "Memory wears out",
        "GPU 1 finds a memory error that it cannot correct, and sets a spare row aside. "
        "It works on, but wants a reset when its job is done.",
        (
            {"do": "ecc", "gpu": 1, "kind": "uncorrected"},
            {"do": "remap", "gpu": 1},
            {"do": "xid", "gpu": 1, "xid": 94},
            {"do": "recovery_action", "gpu": 1, "action": 1, "at": 0.5},
        ),
        ("describe gpu 1", "xid explain 94"),
    ),
    Chapter(
        "A link breaks",
        "Link 7 of GPU 5 goes down. Traffic takes other ways; jobs that use all links slow down.",
        ({"do": "nvlink", "gpu": 5, "link": 7, "active": False}, {"do": "xid", "gpu": 5, "xid": 74}),
        ("get nvlinks --gpu 5",),
    ),
    Chapter(
        "The driver hangs on one GPU",
        "The firmware of GPU 6 answers no more, and every driver call about it blocks. "
        "The other seven are measured as before, and /metrics answers at once.",
        ({"do": "hang", "gpu": 6}, {"do": "xid", "gpu": 6, "xid": 119, "at": 1}),
        ("status", "metrics | grep unresponsive"),
    ),
    Chapter(
        "A GPU falls off the bus",
        "GPU 3 is gone in the middle of a training job. gpuwatch remembers its name, its place and whose job it was.",
        ({"do": "lose", "gpu": 3},),
        ("status", "xid explain 79", "describe gpu 3"),
    ),
    Chapter(
        "Repaired",
        "The node was drained and rebooted. What was counted stays counted.",
        ({"do": "unhang", "gpu": 6}, {"do": "recover", "gpu": "all"}),
        ("status", "get xids"),
    ),
)
