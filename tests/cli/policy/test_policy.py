"""`gpuwatch policy`: the effective policy, and what would have been done about recordings and scenarios."""

import gzip
import json
from pathlib import Path

import msgspec
import pytest

from gpuwatch.cli.main import cli
from gpuwatch.health.checks import CHECKS
from gpuwatch.remediation.planning.scope import on_this_node
from tests.cli.commands import runner
from tests.remediation.planning.remediating import START, finding, view
from tests.seeds import a_third


def run(*words: str) -> tuple[int, str, str]:
    result = runner().invoke(cli, words)
    return result.exit_code, result.stdout, result.stderr


def items(*words: str) -> list[dict[str, str]]:
    code, out, _ = run(*words, "-o", "json")
    assert code == 0
    found: list[dict[str, str]] = json.loads(out)["items"]
    return found


def test_check_shows_every_response_and_where_it_is_from(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(
        "{remediation: {checks: {gpu_missing: taint}, xids: {79: drain}}, checks: {ignore: [zombie_memory]}}"
    )
    rules = {item["subject"]: item for item in items("policy", "check", str(path))}
    assert set(rules) == {row.name for row in CHECKS} | {"XID 79"}
    assert rules["gpu_missing"]["origin"] == "remediation.checks.gpu_missing"
    ignored = rules["zombie_memory"]
    assert (ignored["response"], ignored["origin"]) == ("ignore", "checks.ignore")
    code, out, _ = run("policy", "check", str(path))
    assert code == 0
    assert "XID 79" in out


@pytest.mark.parametrize("named", ["", "gpu-operator/plugin"])
def test_check_names_the_device_plugin_that_may_be_restarted(named: str, tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(f"remediation: {{restart_plugin: '{named}'}}")
    _, out, _ = run("policy", "check", str(path))
    assert f"{named or 'never'} restarted" in out


@pytest.mark.parametrize("command", [("policy", "check"), ("config", "check")])
def test_a_response_that_a_check_does_not_allow_is_refused(command: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text("remediation: {checks: {xid_application: taint}}")
    code, _, error = run(*command, str(path))
    assert code == 2
    assert "remediation.checks.xid_application" in error


@pytest.mark.parametrize(
    ("scenario", "taints"),
    a_third([("healthy", 0), ("app-xid", 0), ("driver-reload", 0), ("fallen-off-bus", 1), ("forged-xid", 0)], 2),
)
def test_a_scenario_leads_to_what_it_should(scenario: str, taints: int) -> None:
    done = items("policy", "test", f"sim:{scenario}", "--duration", "10m")
    assert [item["do"] for item in done].count("taint") == taints


@pytest.mark.parametrize("packed", [False, True])
def test_recorded_views_are_replayed(packed: bool, tmp_path: Path) -> None:
    views = [
        view(*([finding("gpu_lost", at=START + 10)] if 10 <= seconds < 60 else []), at=START + seconds)
        for seconds in range(0, 900, 2)
    ]
    body = b"".join(msgspec.json.encode(each) + b"\n" for each in views)
    path = tmp_path / "views.jsonl"
    path.write_bytes(gzip.compress(body) if packed else body)
    done = {item["do"]: item for item in items("policy", "test", str(path))}
    assert {"taint", "untaint", "condition", "event"} <= set(done)
    _, out, _ = run("policy", "test", str(path))
    assert "quarantined 1 time" in out
    assert "still is" not in out


def test_a_recording_without_a_view_is_no_proof(tmp_path: Path) -> None:
    path = tmp_path / "views.jsonl"
    path.touch()
    code, out, error = run("policy", "test", str(path))
    assert (code, out) == (2, "")
    assert "has no view" in error


@pytest.mark.parametrize("line", ["{}", "no json", '{"schema": 99}'])
def test_what_is_no_view_is_named_by_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "views.jsonl"
    path.write_bytes(msgspec.json.encode(view()) + f"\n{line}\n".encode())
    code, _, error = run("policy", "test", str(path))
    assert code == 2
    assert "line 2" in error


def test_the_policy_of_the_guide_is_one(tmp_path: Path) -> None:
    guide = (Path(__file__).parents[3] / "docs" / "remediation.md").read_text()
    path = tmp_path / "gpuwatch.yaml"
    path.write_text(guide.partition("\n## A policy\n")[2].partition("```yaml\n")[2].partition("```")[0])
    code, out, error = run("policy", "check", str(path))
    assert code == 0, error
    assert "XID 109" in out


def test_check_shows_the_scope_and_what_it_comes_to_on_this_node(tmp_path: Path) -> None:
    path = tmp_path / "gpuwatch.yaml"
    path.write_text("remediation: {scope: {gpu_lost: node}}")
    scopes = {item["subject"]: item["scope"] for item in items("policy", "check", str(path))}
    assert [scopes[name] for name in ("gpu_lost", "xid_fatal", "driver_wedged", "nvlink_down")] == [
        "node", "gpu", "node", "node"
    ]  # fmt: skip
    assert "no agent answers" in run("policy", "check", str(path))[1]
    assert "device plugin" in on_this_node(view(withheld=("GPU-1",)))
    assert "GPU 1 is out now" in on_this_node(view(withheld=("GPU-1",)))
    assert "does not report" in on_this_node(view())
    path.write_text("remediation: {scope: {driver_wedged: gpu}}")
    code, _, error = run("policy", "check", str(path))
    assert (code, "remediation.scope.driver_wedged" in error) == (2, True)
