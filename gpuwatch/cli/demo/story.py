"""The demo's story: what happens to a simulated node and its cluster, in plain words, and where to look at it."""

from typing import Any, Literal, NamedTuple

Step = Literal["", "ready", "work", "scarce", "plenty", "agree"]
"""The step of a chapter: the other chat pod gets ready; a new job asks for a GPU; the node gets a power budget, or
none; owners let their pods be tuned.
"""

Goal = Literal[
    "", "watched", "limited", "returned", "event", "refused", "moved", "waiting", "placed", "unhealthy", "healthy"
]
"""What a chapter waits for before it ends; empty: only for its time."""


class Chapter(NamedTuple):
    """`actions` are those of a scenario's timeline; `commands` are to be tried while it lasts."""

    title: str
    text: str
    actions: tuple[dict[str, Any], ...] = ()
    commands: tuple[str, ...] = ()
    step: Step = ""
    goal: Goal = ""


STORY = (
    Chapter(
        "A cluster at work",
        "Three nodes with eight GPUs each. gpuwatch runs on gpu-node-1: its agent watches the GPUs, its remediator may "
        "act on the Node, its tuner may set clocks and power limits. Programs run in pods; Kubernetes' scheduler "
        "chooses a node with a free GPU for each new one. Here one GPU of every node is free.",
        commands=("status", "get pods", "node status"),
        goal="healthy",
    ),
    Chapter(
        "Power gets scarce",
        "An operator allows gpu-node-1 2800 W, which is less than its GPUs draw. A budget asks no pod: within "
        "seconds the power limits of all GPUs together are no more than that. First all get equal parts. Were it "
        "to last, those that need more would get what the others leave.",
        step="scarce",
        commands=("tune status", "get gpus"),
        goal="limited",
    ),
    Chapter(
        "Power for everybody",
        "The budget is gone. The tuner reverts its settings: every limit is what it was before.",
        step="plenty",
        commands=("tune status", "events"),
        goal="returned",
    ),
    Chapter(
        "Less energy for the same work",
        "The owners of three pods let them be tuned: an annotation each. The tuner watches their GPUs for a minute at "
        "full speed. Then it tries lower clocks for some minutes, five seconds at a time, in turns with full speed, "
        "and holds the one that saves most while the work keeps what was promised: 95 % of its speed, 97 % for the pod "
        "that serves users. When something is wrong with a GPU or the node, it lets go and begins anew, so it will "
        "still be searching when this story is over: leave the demo running to see what it finds.",
        step="agree",
        commands=("tune status",),
        goal="watched",
    ),
    Chapter(
        "A program makes a mistake",
        "The program on GPU 4 reads memory that is not its own. The driver reports XID 31 and stops it. The GPU is "
        "well: gpuwatch notifies the pod's owner by an Event on the pod, and leaves the node alone.",
        ({"do": "xid", "gpu": 4, "xid": 31}, {"do": "xid", "gpu": 4, "xid": 43, "at": 0.5}),
        ("xid explain 31", "events"),
        goal="event",
    ),
    Chapter(
        "A GPU breaks",
        "GPU 4's memory fails for good, and the driver asks for a reset. Within a second gpuwatch puts a taint on the "
        "node: a mark that keeps the scheduler from placing new pods there, while everything that runs goes on. The "
        "policy of this demo also drains: the pod on the broken GPU, and only that one, is asked to leave. It serves "
        "users, and its disruption budget says that one copy must always be ready. The other copy is still loading its "
        "model, so the answer is: not now. gpuwatch asks again later and forces nothing.",
        (
            {"do": "ecc", "gpu": 4, "kind": "uncorrected"},
            {"do": "xid", "gpu": 4, "xid": 95},
            {"do": "recovery_action", "gpu": 4, "action": 1, "at": 0.2},
        ),
        ("node status", "xid explain 95", "describe gpu 4"),
        goal="refused",
    ),
    Chapter(
        "The work moves",
        "Now the other copy is ready. The budget allows the move: the pod leaves, and its replacement comes up on "
        "another node. The seven healthy GPUs of gpu-node-1 go on working.",
        step="ready",
        goal="moved",
        commands=("get pods", "events"),
    ),
    Chapter(
        "New work has to wait",
        "A new job asks for two GPUs. Only gpu-node-1 has two free ones, and it is out of use: the job waits.",
        step="work",
        goal="waiting",
        commands=("node status", "node plan"),
    ),
    Chapter(
        "Repair",
        "A person resets GPU 4. gpuwatch checks the repair: it watches for a while (seconds here, five "
        "minutes by default) that every GPU answers and nothing is wrong. Only then does it take away what it put "
        "there, and nothing else. The waiting job starts.",
        ({"do": "recover", "gpu": 4},),
        ("node status", "describe gpu 4"),
        goal="placed",
    ),
    Chapter(
        "The driver hangs on one GPU",
        "GPU 6 answers no more, and every driver call about it blocks. The other seven are measured as before. Silence "
        "is no proof that a GPU is broken, and a busy driver comes back. When half a minute has gone by, the Node's "
        "condition says what is wrong; no taint is set.",
        ({"do": "hang", "gpu": 6},),
        ("status", "metrics | grep unresponsive"),
        goal="unhealthy",
    ),
    Chapter(
        "All is well again",
        "The driver comes back. What was counted stays counted; what a person wants to know later is in the events.",
        ({"do": "unhang", "gpu": 6}, {"do": "recover", "gpu": "all"}),
        ("status", "events", "get xids"),
        goal="healthy",
    ),
    Chapter(
        "Your turn",
        "Take the node out of use by hand and give it back, stop the tuner and let it go on, or break something.",
        commands=(
            "tune stop",
            "tune resume",
            "node quarantine --reason 'new fan'",
            "node release",
            "sim inject --dir {directory} lose gpu=3",
            "sim inject --dir {directory} recover gpu=all",
        ),
    ),
)
