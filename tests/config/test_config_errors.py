"""What is wrong with a configuration is named by its whole path, with what may stand there."""

from pathlib import Path

import pytest

from gpuwatch.config import load
from gpuwatch.model.errors import UsageError

WRONG = {
    "remediation: {chekcs: {}}": ("unknown key remediation.chekcs", "did you mean remediation.checks?"),
    "remediation: {checks: {gpu_lots: taint}}": ("unknown key remediation.checks.gpu_lots", "did you mean gpu_lost?"),
    "remediation: {checks: {gpu_lost: tant}}": ("remediation.checks.gpu_lost", "taint"),
    "remediation: {xids: {abc: taint}}": ("remediation.xids.abc", "int"),
    "remediation: {xids: {0: observe}}": ("remediation.xids", "0 is no XID"),
    "remediation: {maintenance: [{start: 22:00, ed: 04:00}]}": ("remediation.maintenance[0].end", "missing"),
    "remediation: {maintenance: [{start: 22:00, end: 04:00, dys: [mon]}]}": (
        "remediation.maintenance[0].dys", "remediation.maintenance[0].days?"),
    "remediation: {maintenance: [{start: 22:00, end: 24:30}]}": ("remediation.maintenance[0].end", "24:30"),
    "remediation: {maintenance: [{start: 22:00, end: 23:00, days: [mon, thursday]}]}": (
        "remediation.maintenance[0].days[1]", "thu"),
    "remediation: {drain: {windows: [{start: 2:00, end: 04:00}]}}": ("remediation.drain.windows[0].start", "2:00"),
    "remediation: {maintenance: [{start: 22:00, end: 23:00, timezone: Europe/Berln}]}": (
        "remediation.maintenance[0].timezone", "Europe/Berlin"),
    "remediation: {budget: {max_unavailable: 10 %}}": ("remediation.budget.max_unavailable", "10%"),
    "remediation: {budget: {max_unavailable: 101%}}": ("remediation.budget.max_unavailable", "101%"),
    "remediation: {budget: {max_unavailable: -1}}": ("remediation.budget.max_unavailable", "-1"),
    "remediation: {budget: {node_selector: 'gpu is true'}}": ("remediation.budget.node_selector", "gpu is true"),
    "remediation: {budget: {slot_seconds: 1}}": ("remediation.budget.slot_seconds", "10"),
    "remediation: {held_checks: [gpu_lots]}": ("remediation.held_checks[0]", "gpu_lost"),
    "remediation: {foreign: ['a=b']}": ("remediation.foreign", "a=b"),
    "remediation: {handover: {sentinel: var/run/reboot}}": ("remediation.handover.sentinel", "absolute"),
    "remediation: {recovery_hold: .nan}": ("remediation.recovery_hold", "no finite number"),
    "remediation: {mode: of}": ("remediation.mode", "off, observe, enforce"),
    "remediation: {mode: off, mode: enforce}": ("mode", "twice"),
    "tuning: {mode: enforced}": ("tuning.mode", "off, observe, enforce"),
    "tuning: {delta: 0.05}": ("unknown key tuning.delta", "tuning"),
    "tunning: {mode: off}": ("unknown key tunning", "did you mean tuning?"),
    "metrics: {pod_labels: team}": ("metrics.pod_labels", "array"),
    "metrics: {pod_labels: ['team=a']}": ("metrics.pod_labels", "no key of a label or annotation"),
    "metrics: {pod_labels: ['*']}": ("metrics.pod_labels", "no key of a label or annotation"),
    "metrics: {pod_labels: [team, team]}": ("metrics.pod_labels", "the same name in Prometheus"),
    "metrics: {pod_annotations: [example.com/a-b, example.com/a_b]}": (
        "metrics.pod_annotations", "example.com/a-b", "example.com/a_b"),
    "metrics: {node_labels: [a, b, c, d, e, f, g, h, i]}": ("metrics.node_labels", "9 names are more than 8"),
    "remediation: 5": ("remediation", "no mapping"),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(text)
    with pytest.raises(UsageError) as raised:
        load(path)
    for words in WRONG[text]:
        assert words in str(raised.value)


@pytest.mark.parametrize(
    "selector",
    ["", "a=b", "a==b,c!=d", "!a", "a", "nvidia.com/gpu.present=true", "zone in (a, b),tier notin (x)", "a in ()"],
)
def test_selectors_that_kubernetes_takes(selector: str, tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(f"remediation: {{budget: {{node_selector: '{selector}'}}}}")
    assert load(path).remediation.budget.node_selector == selector


def test_words_and_times_are_what_they_look_like(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text("remediation: {mode: off, maintenance: [{start: 22:00, end: 4:00}, {start: 1:00, end: 22:30}]}")
    with pytest.raises(UsageError, match=r"maintenance\[0\].end"):
        load(path)
    path.write_text("remediation: {mode: off, maintenance: [{start: 22:00, end: 22:30}], xids: {79: drain}}")
    found = load(path).remediation
    assert (found.mode, found.maintenance[0].start, found.maintenance[0].end) == ("off", "22:00", "22:30")
