"""The nouns of `gpuwatch tune status`, and the columns of its table."""

from collections.abc import Mapping
from datetime import datetime

from gpuwatch.cli.items import Item
from gpuwatch.cli.table import Column
from gpuwatch.cli.words import Words, utc
from gpuwatch.model.check_names import XidClass
from gpuwatch.model.setting import Knob, Setting
from gpuwatch.model.tuner_state import GpuTuning, Reason, TuningState
from gpuwatch.model.view import View
from gpuwatch.rules.tuning import judge
from gpuwatch.rules.tuning_gates import owners

STYLES = {TuningState.ELIGIBLE: "green", TuningState.REFUSED: "yellow", TuningState.IDLE: "dim"}


class SettingItem(Item, frozen=True, kw_only=True):
    """A setting that gpuwatch has changed: watts or hertz. `original` null: the clocks were not locked."""

    knob: Knob
    original: float | None
    applied: float
    at: datetime


class ObstacleItem(Item, frozen=True, kw_only=True):
    """One thing that stands against tuning."""

    reason: Reason
    message: str


class TuningItem(Item, frozen=True, kw_only=True):
    """One GPU. `power_limit` watts, as configured; `reason` is the first obstacle's."""

    gpu: int
    uuid: str
    state: TuningState
    reason: Reason | None
    obstacles: tuple[ObstacleItem, ...]
    power_limit: float | None
    power_limit_default: float | None
    users: tuple[str, ...]
    settings: tuple[SettingItem, ...]


def tuning_items(view: View, settings: tuple[Setting, ...], classes: Mapping[int, XidClass]) -> list[TuningItem]:
    """Every GPU, by index. `settings`: those recorded; `classes`: `checks.xids`."""
    judged, _ = judge(view, fresh=True, now=0.0, settings=settings, classes=classes)
    return [_item(view, gpu, settings) for gpu in judged]


def _item(view: View, found: GpuTuning, settings: tuple[Setting, ...]) -> TuningItem:
    sample = next((gpu for gpu in view.snapshot.gpus if gpu.identity.uuid == found.uuid), None)
    return TuningItem(
        gpu=found.index,
        uuid=found.uuid,
        state=found.state,
        reason=found.reason,
        obstacles=tuple(ObstacleItem(reason=each.reason, message=each.words) for each in found.obstacles),
        power_limit=sample.power.limit_configured if sample else None,
        power_limit_default=sample.power.limit_default if sample else None,
        users=tuple(sorted(owners(view, sample))) if sample else (),
        settings=tuple(
            SettingItem(knob=each.knob, original=each.original, applied=each.applied[0], at=utc(each.at))
            for each in settings
            if each.uuid == found.uuid
        ),
    )


def _limit(item: TuningItem, words: Words) -> str:
    return words.draw(item.power_limit, item.power_limit_default)


def _set(item: TuningItem, words: Words) -> str:
    texts = [
        words.watts(each.applied) if each.knob == "power_limit" else words.clock(each.applied) for each in item.settings
    ]
    return ", ".join(texts) or words.glyphs.dash


COLUMNS: tuple[Column[TuningItem], ...] = (
    Column("GPU", lambda i, w: str(i.gpu), right=True),
    Column("STATE", lambda i, w: i.state, style=lambda i: STYLES[i.state]),
    Column("LIMIT/DEFAULT", _limit, right=True, drop=2),
    Column("SET", _set, right=True, drop=1),
    Column("USER", lambda i, w: ", ".join(i.users) or w.glyphs.dash, drop=3, shorten="middle"),
    Column("WHY", lambda i, w: "; ".join(o.message for o in i.obstacles) or w.glyphs.dash, shorten="end", least=14),
    Column("UUID", lambda i, w: i.uuid, wide=True),
)
