"""`gpuwatch why`: on nodes whose trouble is known, the first answer names it."""

from typing import Any, NamedTuple

import pytest

from gpuwatch.config import Config
from gpuwatch.diagnose.slowness import SlowCause, slow_causes
from gpuwatch.model.recent import RecentSamples
from gpuwatch.sim.node.scenario import parse
from gpuwatch.sim.playback import views
from gpuwatch.tuning.model.setting import Knob, Setting


class Known(NamedTuple):
    """A node and the cause that is known. `gpu`: the one asked about; `model`: of its GPUs."""

    cause: str
    timeline: tuple[dict[str, Any], ...] = ()
    load: str = "training"
    gpu: int = 0
    model: str = "h100"
    gpus: int = 1
    memory: float = 0.5
    workloads: tuple[dict[str, Any], ...] | None = None
    knob: tuple[Knob, float] | None = None
    node: dict[str, Any] = {}
    duration: float = 60


def do(what: str, **how: Any) -> dict[str, Any]:
    return {"at": 1, "do": what, "gpu": 0} | how


def pod(name: str, *gpus: int | str, **how: Any) -> dict[str, Any]:
    return {"name": name, "gpus": list(gpus), "load": "training", "memory": 0.3} | how


RANKS = tuple(pod(f"ml/train-{rank}", rank) for rank in range(4))

KNOWN = {
    "power limit lowered under training": Known("power_cap", (do("power_limit", watts=400),)),
    "power limit lowered under a dense load": Known("power_cap", (do("power_limit", watts=300),), "steady"),
    "power limit lowered on an A100": Known("power_cap", (do("power_limit", watts=250),), "steady", model="a100"),
    "full load at the board's own limit": Known("power_cap"),
    "cooling weak": Known("heat", (do("thermal", ambient=42, cooling=0.55),), "steady", duration=120),
    "cooling failed": Known("heat", (do("thermal", ambient=60, cooling=0.5),), "steady", duration=120),
    "heat beside a lowered limit": Known(
        "heat", (do("thermal", ambient=60, cooling=0.5), do("power_limit", watts=690)), "steady", duration=120
    ),
    "power brake": Known("power_brake", (do("power_brake"),)),
    "power brake under inference": Known("power_brake", (do("power_brake"),), "decoding"),
    "clocks locked by another program": Known("clocks_locked", (do("lock_clocks", highest=1200),)),
    "clocks locked a little": Known("clocks_locked", (do("lock_clocks", highest=1650),), "memory"),
    "clocks locked by the tuner": Known("tuner_cap", (do("lock_clocks", highest=1200),), knob=("locked_clocks", 1.2e9)),
    "power limit of the tuner": Known("tuner_cap", (do("power_limit", watts=450),), knob=("power_limit", 450.0)),
    "clocks locked lower than the tuner's lock": Known(
        "clocks_locked", (do("lock_clocks", highest=900),), knob=("locked_clocks", 1.2e9)
    ),
    "power limit lower than the tuner's": Known(
        "power_cap", (do("power_limit", watts=350),), knob=("power_limit", 500.0)
    ),
    "clocks stuck": Known("clocks_stuck", (do("stuck_clock", megahertz=345),), "memory"),
    "PCIe narrow": Known("pcie_degraded", (do("pcie", width=4),)),
    "PCIe old": Known("pcie_degraded", (do("pcie", generation=1),), "memory"),
    "NVLink down": Known("nvlink_degraded", (do("nvlink", link=3, active=False),), gpus=2),
    "all NVLinks down": Known("nvlink_degraded", (do("nvlink", active=False),), gpus=2),
    "NVLink errors": Known(
        "nvlink_degraded", (do("nvlink", at=20, link=1, errors={"replay": 90_000, "crc": 90_000}),), gpus=2
    ),
    "fabric unwell": Known("nvlink_degraded", (do("fabric", health=0x1),)),
    "data loader too slow": Known("loader_bound", load="starved", duration=120),
    "data loader too slow, on a GPU that waits for a remap": Known(
        "loader_bound", (do("remap"),), "starved", duration=120
    ),
    "a pod that does nothing": Known("no_work", load="idle"),
    "memory full": Known("memory_full", load="memory", memory=0.995),
    "neighbour on a time-sliced GPU": Known(
        "neighbour",
        model="l40s",
        node={"replicas": 4},
        workloads=(pod("a/sd-0", "0::0", load="memory"), pod("b/sd-1", "0::1", load="memory")),
    ),
    "neighbour under MPS": Known(
        "neighbour", workloads=(pod("a/x", 0, load="memory", kind="mps"), pod("b/y", 0, load="memory", kind="mps"))
    ),
    "row remap pending": Known("ecc_pending", (do("remap"),), "memory"),
    "page retirement pending": Known("ecc_pending", (do("retire"),), "memory", model="t4"),
    "repair pending beside full load": Known("ecc_pending", (do("repair", tpc=True),)),
    "straggler by a locked clock": Known(
        "clocks_locked", (do("lock_clocks", gpu=2, highest=900),), gpu=2, gpus=4, workloads=RANKS
    ),
    "a peer of it waits": Known(
        "waits_for_peer", (do("lock_clocks", gpu=2, highest=900),), gpu=1, gpus=4, workloads=RANKS
    ),
    "straggler for no reason of the GPU": Known(
        "straggler",
        gpu=3,
        gpus=4,
        workloads=tuple(
            pod(f"ml/train-{rank}", rank, load="memory", scale=0.75 if rank == 3 else 1) for rank in range(4)
        ),
    ),
    "GPU lost": Known("not_answering", (do("lose"),)),
    "GPU hangs": Known("not_answering", (do("hang"),)),
    "the driver asks for a reset": Known("fault", (do("recovery_action", action=1),)),
    "MIG slices": Known("mig_slice", node={"mig": {0: ["3g.40gb", "3g.40gb"]}}, workloads=(pod("a/x", "0:0"),)),
    "little work": Known("little_work", load="inference", workloads=(pod("a/x", 0, load="memory", scale=0.3),)),
}


def causes_of(known: Known) -> list[SlowCause]:
    """Those of the GPU asked about, by the agent's own judgement of the simulated node."""
    workloads = known.workloads
    if workloads is None:
        workloads = (pod("ml/train", *range(known.gpus), load=known.load, memory=known.memory),)
    node = {"model": known.model, "gpus": known.gpus} | known.node
    story = {"description": "", "node": node, "workloads": list(workloads), "timeline": list(known.timeline)}
    recent, view = RecentSamples(spacing=1), None
    for view in views(
        parse(story, "story"), Config(), 1.7e9, known.duration, short_step=4, long_step=6, with_gpm=known.gpus > 2
    ):
        recent.add(view)
    uuid = next(s.identity.uuid for s in view.snapshot.statuses if s.identity.index == known.gpu)
    settings = ()
    if known.knob:
        knob, value = known.knob
        settings = (Setting(uuid=uuid, knob=knob, original=None, applied=(value,), at=0, boot_id="", driver=""),)
    return [cause for cause in slow_causes(view, recent.recent, settings) if cause.gpu == uuid]


QUICK = {known.cause: name for name, known in reversed(KNOWN.items())}.values()
"""One of each cause; `slow` has the others."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in KNOWN]
)
def test_the_first_answer_is_the_known_cause(name: str):
    causes = causes_of(KNOWN[name])
    assert causes, "no cause found"
    assert causes[0].name == KNOWN[name].cause, [(each.name, each.rank, each.loss, each.message) for each in causes]
    assert all(each.message and each.action and "{gpu}" not in each.action for each in causes)
