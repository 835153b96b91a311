"""The nouns of `gpuwatch tune status`: what a tuner reports of each GPU, or what is judged here where none answers."""

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from gpuwatch.cli.console.document import Envelope
from gpuwatch.cli.console.words import utc
from gpuwatch.cli.look.items import Item, SettingItem, same_members, setting_items
from gpuwatch.model.snapshot import Power
from gpuwatch.model.view import View
from gpuwatch.tuning.model.setting import Setting
from gpuwatch.tuning.model.status import BudgetState, GpuTuning, ObstacleReason, TuningState


class ObstacleItem(Item, frozen=True, kw_only=True):
    """One obstacle to tuning."""

    reason: ObstacleReason
    message: str


class TuningItem(Item, frozen=True, kw_only=True):
    """One GPU. `power_limit` watts, as configured; `reason` is the first obstacle's; `note`: what is being done.

    `clock_cap` hertz and `power_cap` watts: what the tuner has in force, null: nothing. `slowdown`, `slowdown_upper`
    (95 %), `slowdown_bound` and `saved` are ratios; all but the bound are measured, null: not measured. `joules_saved`:
    since the tuner started. `signal`: what caps are judged by, `counters`, `progress` or `slo`. Where no tuner answers,
    all of these but the bound and a recorded `power_cap` are null.
    """

    gpu: int
    uuid: str
    state: TuningState
    since: datetime | None
    reason: ObstacleReason | None
    obstacles: tuple[ObstacleItem, ...]
    note: str
    clock_cap: float | None
    power_cap: float | None
    slowdown: float | None
    slowdown_upper: float | None
    slowdown_bound: float | None
    saved: float | None
    signal: str | None
    joules_saved: float | None
    power_limit: float | None
    power_limit_default: float | None
    users: tuple[str, ...]
    settings: tuple[SettingItem, ...]


class BudgetItem(Item, frozen=True, kw_only=True):
    """The node's power budget in watts; `limits` and `draw` of all GPUs together, null: not known."""

    budget: float
    how: str
    message: str
    limits: float | None
    draw: float | None


class TuneStatus(Envelope, frozen=True, kw_only=True):
    """`tuner`: whether one answers; if not, `mode` is null and the GPUs are judged here. `seen`: time of its last
    state. `guard`: whether its heartbeat arrives; null: no tuner in mode enforce reads it. `consents`: when last read.
    """

    tuner: bool
    mode: str | None
    seen: datetime | None
    guard: bool | None
    consents: datetime | None
    stopped: str | None
    budget: BudgetItem | None
    trouble: str | None


def tuning_items(
    gpus: Iterable[GpuTuning], view: View | None, settings: tuple[Setting, ...], *, reported: bool
) -> tuple[TuningItem, ...]:
    """Every GPU, by index: as a tuner reports it, or as a tuner's first cycle would judge it; what that would observe
    is `eligible`. `view` adds the power limits. `settings`: those recorded.
    """
    powers = {} if view is None else {gpu.identity.uuid: gpu.power for gpu in view.snapshot.gpus}
    items = []
    for gpu in sorted(gpus, key=lambda gpu: gpu.index):
        eligible = not reported and gpu.state is TuningState.OBSERVING
        power = powers.get(gpu.uuid, Power())
        items.append(
            same_members(
                TuningItem,
                replace(gpu, state=TuningState.ELIGIBLE, note="") if eligible else gpu,
                gpu=gpu.index,
                since=None if gpu.since is None else utc(gpu.since),
                obstacles=tuple(same_members(ObstacleItem, each) for each in gpu.obstacles),
                power_cap=gpu.power_limit,
                slowdown_bound=gpu.bound,
                joules_saved=gpu.joules_saved if reported else None,
                power_limit=power.limit_configured,
                power_limit_default=power.limit_default,
                users=tuple(gpu.owners),
                settings=setting_items(settings, gpu.uuid),
            )
        )
    return tuple(items)


def budget_item(budget: BudgetState | None) -> BudgetItem | None:
    """The budget as the tuner reports it."""
    return None if budget is None else same_members(BudgetItem, budget)
