"""The demo's story: what happens to a simulated node and its cluster, in plain words, and where to look at it."""

from typing import Any, NamedTuple


class Chapter(NamedTuple):
    """`actions` are those of a scenario's timeline; `commands` are to be tried while it lasts; `step` is one of
    `DemoStage.act`; `goal`, of `DemoStage.reached`, is what the chapter waits for before it ends.
    """

    title: str
    text: str
    actions: tuple[dict[str, Any], ...] = ()
    commands: tuple[str, ...] = ()
    step: str = ""
    goal: str = ""


STORY = (
    Chapter(
        "A cluster at work",
        "Three nodes with eight GPUs each. gpuwatch runs on gpu-node-1: its agent watches the GPUs, its remediator may "
        "act on the Node, its tuner may set clocks and power limits. Programs run in pods; Kubernetes' scheduler "
        "chooses a node with a free GPU for each new one. Here one GPU of gpu-node-1 and one of gpu-node-2 are free.",
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
        "Power for all GPUs",
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
        "that serves users. When something is wrong with a GPU or the node, it reverts its settings and starts "
        "again, so it will still be searching when this story is over: leave the demo running to see what it finds.",
        step="agree",
        commands=("tune status",),
        goal="watched",
    ),
    Chapter(
        "A program makes a mistake",
        "The program on GPU 4 reads memory that is not its own. The driver reports XID 31 and stops it. The GPU is "
        "healthy: gpuwatch notifies the pod's owner by an Event on the pod, and leaves the node alone.",
        ({"do": "xid", "gpu": 4, "xid": 31}, {"do": "xid", "gpu": 4, "xid": 43, "at": 0.5}),
        ("xid explain 31", "events"),
        goal="event",
    ),
    Chapter(
        "A first memory error",
        "GPU 4 has a memory error that the hardware contains. NVIDIA's device plugin, which offers GPUs to Kubernetes, "
        "takes GPU 4 out: the pod on it keeps running, and no new one is given that GPU.",
        (
            {"do": "ecc", "gpu": 4, "kind": "uncorrected"},
            {"do": "xid", "gpu": 4, "xid": 94},
            {"do": "device_plugin", "unhealthy": [4], "at": 0.5},
        ),
        ("status", "xid explain 94"),
        goal="out",
    ),
    Chapter(
        "The GPU breaks",
        "The next error is not contained, and the driver asks for a reset. The plugin has taken GPU 4 out, so gpuwatch "
        "sets no taint: the node still takes work for the other seven. (Without the plugin it would take none.) "
        "The policy of this demo also drains: the pod on GPU 4, and only that one, is asked to leave. It "
        "serves users, and its disruption budget says that one copy must always be ready. The other copy is still "
        "loading its model, so the answer is: not now. gpuwatch asks again later and forces nothing.",
        ({"do": "xid", "gpu": 4, "xid": 95}, {"do": "recovery_action", "gpu": 4, "action": 1, "at": 0.2}),
        ("node status", "xid explain 95", "describe gpu 4"),
        goal="refused",
    ),
    Chapter(
        "The work moves",
        "Now the other copy is ready. The budget allows the move: the pod leaves, and its replacement comes up on "
        "another node. The other pods of gpu-node-1 keep working.",
        step="ready",
        goal="moved",
        commands=("get pods", "events"),
    ),
    Chapter(
        "New work comes to the same node",
        "A new job has two pods, which want a GPU each. The only free one that is healthy is GPU 7 of gpu-node-1: the "
        "first pod gets it. The second pod has to wait for GPU 4.",
        step="work",
        goal="waiting",
        commands=("node status", "node plan"),
    ),
    Chapter(
        "Repair",
        "An operator starts gpuwatch's repairer, which is off by default. Nothing uses GPU 4, so it is reset. The "
        "policy demands a proof: the repairer also puts GPU 4 to work. (A simulated GPU cannot compute; it passes when "
        "the driver asks for nothing.) When everything has been healthy for a while (seconds here, five minutes "
        "by default), gpuwatch removes what it wrote on the Node, and nothing else. The device plugin counts a GPU in "
        "only when it starts, so gpuwatch has its pod restarted, as the policy allows. The waiting pod gets GPU 4.",
        step="repair",
        goal="placed",
        commands=("node status", "describe gpu 4", "events"),
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
        "Everything is healthy again",
        "The driver comes back. What was counted stays counted; what a person wants to know later is in the events.",
        ({"do": "unhang", "gpu": 6}, {"do": "recover", "gpu": "all"}),
        ("status", "events", "get xids"),
        goal="healthy",
    ),
    Chapter(
        "Your turn",
        "Take the node out of use by hand and release it, stop the tuner and resume it, or break something.",
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
