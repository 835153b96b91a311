"""Every scenario under every long-term driver: what one does not give is absent, and no fault is lost for it."""

from functools import cache

import pytest
from msgspec.structs import replace

from gpuwatch.config import Config
from gpuwatch.health.checks import CHECK_BY_NAME
from gpuwatch.model.view import View
from gpuwatch.sim.node.scenario import load, names
from gpuwatch.sim.playback import views
from tests.metrics.page import DRIVERS

AT = 1_700_000_000.0
QUICK = ("fallen-off-bus", "healthy")
NEWEST = "590.48"


@cache
def played(scenario: str, driver: str) -> list[View]:
    story = load(scenario)
    story = replace(story, node=replace(story.node, driver=f"{driver}.01"))
    return list(views(story, Config(), AT, 240.0, short_step=20.0))


@pytest.mark.parametrize("driver", [driver for driver in DRIVERS if driver != NEWEST])
@pytest.mark.parametrize(
    "scenario", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in names()]
)
def test_a_scenario_is_judged_alike(scenario: str, driver: str) -> None:
    older, newest = played(scenario, driver), played(scenario, NEWEST)
    lacked = {path for view in older for gpu in view.snapshot.gpus for path in gpu.why_absent}
    # a driver without a recovery action cannot confirm by it what the kernel log says
    unconfirmed = {gpu for check, gpu in faults(older) if check == "xid_unconfirmed" and "recovery_action" in lacked}
    assert faults(older) - {("xid_unconfirmed", gpu) for gpu in unconfirmed} <= faults(newest)
    for check, gpu in faults(newest) - faults(older):
        is_weaker = check == "xid_fatal" and gpu in unconfirmed
        assert is_weaker or any(path.startswith(reads) for path in lacked for reads in CHECK_BY_NAME[check].reads), (
            check
        )
    for view, same in zip(older, newest, strict=False):
        for gpu in view.snapshot.gpus:
            model = next((each for each in same.snapshot.gpus if each.identity.uuid == gpu.identity.uuid), None)
            assert gpu.errors == (model.errors if model else {})
            if model:
                absent = {path for path, text in gpu.why_absent.items() if driver in text}
                assert set(gpu.unsupported) - set(model.unsupported) == absent - set(model.unsupported)


def faults(of: list[View]) -> set[tuple[str, str | None]]:
    return {(finding.check, finding.gpu) for view in of for finding in view.judgement.findings}
