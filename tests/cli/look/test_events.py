"""`gpuwatch events` and the history of `describe gpu`: choosing among what happened, with and without an agent."""

import json
import subprocess
from pathlib import Path

import pytest
from msgspec import structs

from gpuwatch.agent import client
from gpuwatch.agent.client import AgentClient
from gpuwatch.model.event import Result
from gpuwatch.model.xid import XidEvent
from gpuwatch.storage.store import Store
from tests.cli.commands import ask, run
from tests.cli.processes import started
from tests.model import views
from tests.waiting import until


def items(*args: str) -> list[dict]:
    result = ask(views.failing(), "events", *args, "-o", "json", events=views.a_fault_and_its_end())
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["items"]


def kinds(found: list[dict]) -> set[str]:
    return {item["kind"] for item in found}


def test_everything_comes_oldest_first():
    found = items()
    assert [item["at"] for item in found] == sorted(item["at"] for item in found)
    assert kinds(found) == {"xid", "finding", "action"}


@pytest.mark.parametrize("wanted", [("xid",), ("finding", "action")])
def test_only_some_kinds(wanted):
    assert kinds(items(*(option for kind in wanted for option in ("--kind", kind)))) == set(wanted)


def test_of_one_gpu_also_what_was_done_about_it():
    found = items("--gpu", "2")
    assert len(found) == len(items()) - 1
    assert all(item["check"] != "monitoring_degraded" for item in found)
    assert items("--gpu", "0") == []


def test_since_a_moment():
    assert [item["change"] for item in items("--since", "2026-09-21T14:13:00Z")] == ["ended"]
    assert items("--since", "1s") == []


def test_an_action_is_reported_once_with_what_came_of_it():
    numbers = [item["number"] for item in items("--kind", "action")]
    assert len(numbers) == len(set(numbers)) > 1
    assert "intended" not in {item["result"] for item in items("--kind", "action")}


def test_an_action_that_was_cut_off_is_reported_as_intended():
    events = views.a_fault_and_its_end()
    cut_off = structs.replace(events, actions=tuple(a for a in events.actions if a.result is Result.INTENDED))
    told = json.loads(ask(views.failing(), "events", "--kind", "action", "-o", "json", events=cut_off).stdout)["items"]
    assert [item["result"] for item in told] == ["intended"]


@pytest.mark.parametrize("wrong", ["yesterday", "5 minutes", "-1h", "nan"])
def test_a_time_that_is_none_is_refused_with_what_to_write(wrong):
    result = ask(views.failing(), "events", "--since", wrong)
    assert result.exit_code == 2
    assert "write 30m, 2h" in result.stderr


def test_history_is_part_of_the_description():
    result = ask(views.failing(), "describe", "gpu", "2", "-o", "json", events=views.a_fault_and_its_end())
    (gpu,) = json.loads(result.stdout)["items"]
    assert kinds(gpu["history"]) == {"xid", "finding", "action"}


def test_without_an_agent_and_without_a_driver_what_was_kept_is_shown(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(client, "agent_sockets", lambda settings: ())  # an agent may listen on this machine's
    store = Store.open(tmp_path)
    store.add(XidEvent(at=1.8e9, xid=79, source="kernel", pci="0000:1d:00", boot_id="b", sequence=1))
    store.close()
    missing = ("--nvml-library", str(tmp_path / "none.so"))
    result = run(*missing, "events", "--state-dir", str(tmp_path), "-o", "json")
    assert result.exit_code == 0, result.stderr
    assert [item["xid"] for item in json.loads(result.stdout)["items"]] == [79]
    assert "these are the events that an agent has stored" in result.stderr
    assert run(*missing, "events", "--state-dir", str(tmp_path / "other")).exit_code == 5


@pytest.mark.parametrize("at", [1e12, 1e300])
def test_an_event_beyond_all_dates_costs_no_other(at: float, tmp_path: Path, monkeypatch):
    monkeypatch.setattr(client, "agent_sockets", lambda settings: ())
    store = Store.open(tmp_path)
    for when, number in ((1.8e9, 1), (at, 2)):
        store.add(XidEvent(at=when, xid=79, source="kernel", pci="0000:1d:00", boot_id="b", sequence=number))
    store.close()
    for output in ("json", "table"):
        result = run("--nvml-library", str(tmp_path / "none.so"), "events", "--state-dir", str(tmp_path), "-o", output)
        assert result.exit_code == 0, result.stderr
        assert result.stdout.count("79") == 2


def test_an_agents_store_is_read_after_its_end(tmp_path: Path):
    node, socket, state = tmp_path / "node", tmp_path / "agent.sock", tmp_path / "state"
    command = (
        "--source", "sim:healthy", "agent", "--listen", "127.0.0.1:0", "--socket", str(socket),
        "--sim-dir", str(node), "--interval", "0.2", "--state-dir", str(state),
    )  # fmt: skip
    with started(*command, stderr=subprocess.DEVNULL):
        until(lambda: run("--source", f"agent:{socket}", "get", "gpus", "-o", "name").exit_code == 0)
        assert AgentClient(str(socket)).view().snapshot.host.machine_id
        injected = run("sim", "inject", "--sim-dir", str(node), "xid", "gpu=3", "xid=79")
        assert injected.exit_code == 0, injected.stderr
        until(lambda: {"xid", "finding"} <= kinds(asked("--source", f"agent:{socket}")))
    found = asked("--source", "sim:healthy", state=state)
    assert {"xid", "finding"} <= kinds(found)
    assert [item["gpu"] for item in found if item["kind"] == "xid"] == [3]


def asked(*source: str, state: Path | None = None) -> list[dict]:
    where = ("--state-dir", str(state)) if state else ()
    result = run(*source, "events", *where, "-o", "json")
    return json.loads(result.stdout)["items"] if result.exit_code == 0 else []
