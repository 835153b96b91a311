"""COMMANDS, the table of the program's commands: for the help, and to find command lines in printed text.

It holds names and texts only, so that neither loads a command.
"""

from typing import NamedTuple

EPILOG = """\b
Each option is also a variable: GPUWATCH_TUNER_MODE for --mode of tuner.
Exit codes: 0 healthy or done, 1 no answer, 2 wrong usage, 3 degraded, 4 failed,
5 no GPU stack, 6 permission missing, 130 interrupted.
"""
"""The end of every command's help."""


class Entry(NamedTuple):
    """One row. `target` is `module:attribute` below gpuwatch.cli; `help` is the command's own first line."""

    name: str
    help: str
    target: str
    section: str


COMMANDS = (
    Entry("status", "Show the node on one screen: verdict, GPUs, findings.", "look.status:status", "Look"),
    Entry("top", "Watch the GPUs live.", "look.top:top", "Look"),
    Entry("get", "List gpus, processes, pods, mig, nvlinks, findings or xids.", "look.get:get", "Look"),
    Entry("describe", "Show everything about one GPU, pod or Slurm job.", "look.describe:describe", "Look"),
    Entry("why", "Say why a GPU or a pod is slow: causes, the likeliest first.", "look.why:why", "Look"),
    Entry("diagnose", "Find out why this node does not work, and what to do.", "diagnose.diagnose:diagnose", "Look"),
    Entry("xid", "Explain, list, parse and watch XIDs.", "xid.xid:xid", "Look"),
    Entry("events", "Show what happened: XIDs, SXids, lost GPUs, findings, actions.", "look.events:events", "Look"),
    Entry("node", "Show, plan, quarantine, validate and release a Kubernetes Node.", "node.node:node", "Act"),
    Entry("tune", "Show what is tuned and what would be; stop it; restore what was set.", "tune.tune:tune", "Act"),
    Entry(
        "recommend",
        "Show who holds more GPU than they use, and what to give them.",
        "recommend.recommend:recommend",
        "Act",
    ),
    Entry("progress", "Count work done, as the tuner's measure of speed.", "progress:progress", "Act"),
    Entry("repaired", "Say that a GPU was repaired: its findings from before end.", "repaired:repaired", "Act"),
    Entry("agent", "Run the node agent.", "agent:agent", "Run"),
    Entry("remediator", "Keep new work off sick GPUs.", "remediator:remediator", "Run"),
    Entry("repairer", "Reset sick GPUs that nothing uses.", "repairer:repairer", "Run"),
    Entry("tuner", "Tune GPUs, or say which could be; guard what was set.", "tuner:tuner", "Run"),
    Entry("serve", "Show a recording in a browser, as an agent shows its node.", "serve:serve", "Run"),
    Entry("demo", "Run a simulated node through a story of faults.", "demo.command:demo", "Run"),
    Entry("metrics", "Print the metrics once, or list them.", "metrics.metrics:metrics", "Develop"),
    Entry("capture", "Record what the driver answers, for replay elsewhere.", "capture:capture", "Develop"),
    Entry("sim", "Run and disturb a simulated node.", "sim.sim:sim", "Develop"),
    Entry("policy", "Check and try out what is done about faults.", "policy.policy:policy", "Develop"),
    Entry("config", "Show and check the configuration.", "config:config", "Develop"),
    Entry("version", "Print the versions of this program and of the agent.", "version:version", "Develop"),
    Entry("completion", "Print the completion script of a shell.", "completion:completion", "Develop"),
)
