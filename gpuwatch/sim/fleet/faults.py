"""FAULTS: what `gpuwatch sim fleet` can let happen to a cluster, and how each fault shows on a GPU."""

from typing import NamedTuple


class Symptom(NamedTuple):
    """How a GPU looks: what its driver asks for (NVML field 230), whether it is gone, and the XIDs that told of it."""

    recovery_action: int = 0
    lost: bool = False
    xids: tuple[int, ...] = ()


WELL = Symptom()


class Fault(NamedTuple):
    """One row. `share` of the nodes get it, on `gpus` of their GPUs (None: all of them).

    `driver`: the version that brings it, taken back by the repair. `reboot`: repaired by one. `again`: seconds after
    which its XIDs come again. `comes_and_goes`: seconds it is there, then as many it is not. `taints`: whether it may
    keep a node from work at all.
    """

    words: str
    symptom: Symptom
    share: float = 1.0
    gpus: int | None = None
    driver: str | None = None
    reboot: bool = False
    again: float | None = None
    comes_and_goes: float | None = None
    taints: bool = True


FAULTS: dict[str, Fault] = {
    "driver-rollout": Fault(
        "a new driver makes every GPU of every node ask for a reset",
        Symptom(recovery_action=1, xids=(119,)),
        driver="595.58.03",
    ),
    "xid-79": Fault(
        "one node in twenty loses a GPU from the bus",
        Symptom(lost=True, xids=(79,)),
        share=0.05,
        gpus=1,
        reboot=True,
    ),
    "app-xids": Fault(
        "applications fail on every GPU of every node, again and again",
        Symptom(xids=(13, 31, 43, 45)),
        again=60.0,
        taints=False,
    ),
    "flapping": Fault(
        "one GPU of every node asks for a reset, and does not, and does",
        Symptom(recovery_action=1),
        gpus=1,
        comes_and_goes=40.0,
    ),
}
