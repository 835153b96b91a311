"""`gpuwatch recommend`: what an agent's advice looks like to people, scripts, spreadsheets and shells."""

import csv
import gzip
import io
import json
import os
import pty
import select
import shlex
import subprocess
import time
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from gpuwatch.agent import client
from gpuwatch.cli.recommend.items import total
from gpuwatch.cli.recommend.output_files import COLUMNS, files
from gpuwatch.cli.recommend.recommend import FINDINGS, LEVELS
from gpuwatch.cli.recommend.screen import TITLES
from gpuwatch.config import RightsizingConfig
from gpuwatch.model.work import WorkloadKey
from gpuwatch.rightsizing.model.recommendation import FindingKind, Level, RecommendedAction, Savings
from gpuwatch.rightsizing.model.usage import UsageWindow
from gpuwatch.rightsizing.service import checkpoint as usage_checkpoint
from gpuwatch.rightsizing.service.thread import LEARNING, OFF
from gpuwatch.rightsizing.usage.ledger import UsageLedger
from tests import fast_yaml
from tests.cli.commands import advised, ask, run, serving
from tests.cli.processes import interrupted, started
from tests.cli.recommend import advice
from tests.model.views import healthy, uuid
from tests.waiting import BOUND_SECONDS


def declared_class(*args: str, body=advice.everything, env: dict[str, str] | None = None) -> str:
    found = advised(body(), "recommend", *args, env=env)
    assert found.exit_code == 0, found.stderr
    return found.stdout


def items(*args: str) -> list[dict]:
    return json.loads(declared_class(*args, "-o", "json"))["items"]


def test_help_names_every_finding_and_every_level():
    assert set(FINDINGS) == set(FindingKind)
    assert list(LEVELS) == list(Level)
    assert all(finding in run("recommend", "--help").stdout for finding in FINDINGS)


def test_there_are_words_for_every_finding():
    assert set(TITLES) == set(FindingKind)


@pytest.mark.parametrize("width", [80, 112])
def test_every_row_has_what_it_is_now_and_instead(width: int):
    text = declared_class(env={"COLUMNS": str(width)})
    rows = text.splitlines()[-len(advice.everything().items) :]
    assert max(map(len, text.splitlines())) <= width
    assert [row.split()[-1] for row in rows] == [each.confidence for each in advice.everything().items]
    fits = next(row for row in rows if row.startswith("fits MIG"))
    assert all(part in fits for part in ("nlp/", " gpu ", " mig-2g.20gb ", "17.1 h/d"))


def test_the_sum_comes_first_and_counts_a_gpu_once():
    counts, saves, watts, money, rest = " ".join(declared_class().split("\n\n")[0].split()).split(", ", 4)
    assert (counts, saves, watts) == ("7 recommendations", "65.1 GPU-hours a day", "510 W")
    assert money == "117 USD a day; 31 workloads seen"
    assert rest == "7 of them still being learned"


def test_of_several_findings_about_one_workload_the_dearest_counts_and_room_is_no_saving():
    fits, shared = (
        advice.mig(),
        advice.one(FindingKind.DUTY_CYCLED, RecommendedAction.SHARE, savings=Savings(gpu_hours_per_day=18.0)),
    )
    assert total((fits, shared)).gpu_hours_per_day == 18.0
    assert total((fits, fits)).gpu_hours_per_day == pytest.approx(34.2), "two of a kind are two pods"
    assert total((advice.layout(), advice.quota())) == Savings(gpu_hours_per_day=0)


def test_what_has_no_price_is_reported_to_have_none_and_is_never_free():
    found = advised(advice.unpriced(), "recommend", "-o", "json")
    assert {item["savings"]["money_per_day"] for item in json.loads(found.stdout)["items"]} == {None}
    assert json.loads(found.stdout)["total"]["money_per_day"] is None
    told = advised(advice.unpriced(), "recommend")
    assert "rightsizing.prices" in told.stderr
    assert "MONEY" not in told.stdout
    assert "rightsizing.prices" not in advised(advice.everything(), "recommend").stderr


def test_how_long_is_learned_is_reported_by_the_configuration(tmp_path):
    config = tmp_path / "gpuwatch.yaml"
    config.write_text("rightsizing: {min_history: 7200}")
    found = ask(healthy(), "--config", str(config), "recommend", advice=advice.everything())
    assert "7 workloads are still being learned, watched for 9.4 days so far" in found.stderr
    assert "after 2 h of history" in found.stderr
    learned = replace(advice.everything(), learning=0)
    assert "learned" not in advised(learned, "recommend").stderr


def test_a_question_after_minutes_is_answered_with_when_there_will_be_more():
    early = replace(advice.nothing(), since=advice.nothing().at - 300.0, learning=1)
    told = advised(early, "recommend").stderr
    assert "1 workload is still being learned, watched for 5 minutes so far" in told
    assert "an idle GPU is named after 40 minutes without work" in told
    assert "--from-prometheus URL" in told
    assert "idle GPU" not in advised(advice.nothing(), "recommend").stderr, "nine days are enough to see one"


@pytest.mark.parametrize("asked", [("-n", "nosuch"), ("-n", "nlp", "--kind", "energy")])
def test_a_choice_that_leaves_nothing_is_reported(asked: tuple[str, ...]):
    assert "none of 7 is what was asked for" in advised(advice.everything(), "recommend", *asked).stderr
    assert "asked for" not in advised(advice.nothing(), "recommend", *asked).stderr


def test_a_namespace_of_which_nobody_was_seen_is_reported():
    unseen = replace(advice.nothing(), workloads=0, learning=0)
    assert "no workload in nosuch used a GPU" in advised(unseen, "recommend", "-n", "nosuch").stderr


def test_nothing_to_recommend_is_reported_and_is_no_error():
    assert declared_class(body=advice.nothing).startswith("no recommendations; 31 workloads seen")
    assert declared_class("-o", "name", body=advice.nothing) == ""
    assert declared_class("-o", "apply", body=advice.nothing).endswith("# There is nothing to apply.\n")
    assert declared_class("-o", "csv", body=advice.nothing).splitlines() == [",".join(COLUMNS)]


@pytest.mark.parametrize(
    ("args", "kinds"),
    [
        (("-n", "vision"), {"idle_holder"}),
        (("-n", "vision", "-n", "speech"), {"idle_holder", "quota_slack"}),
        (("--kind", "mig_fit", "--kind", "energy"), {"mig_fit", "energy"}),
        (("--min-confidence", "high"), {"idle_holder"}),
        (("--top", "2"), {"mig_layout", "idle_holder"}),
        (("-n", "nlp", "--kind", "energy"), set()),
        (("mig-fit-1f3a9c",), {"mig_fit"}),
    ],
)
def test_one_may_choose(args: tuple[str, ...], kinds: set[str]):
    assert {item["kind"] for item in items(*args)} == kinds


def test_an_id_that_is_not_there_is_wrong_usage():
    found = advised(advice.everything(), "recommend", "mig-fit-0")
    assert (found.exit_code, found.stdout) == (2, "")
    assert "there is no recommendation mig-fit-0" in found.stderr


def test_json_and_yaml_are_the_same_and_have_times_of_people():
    found = json.loads(declared_class("-o", "json"))
    as_yaml = fast_yaml.load(declared_class("-o", "yaml"))
    assert as_yaml | {"source": ""} == found | {"source": ""}, "each asks another socket"
    assert (found["kind"], found["learning"], found["source"][:5]) == ("RecommendationList", 7, "agent")
    assert found["items"][0]["expires"] > found["items"][0]["at"] == found["at"]
    assert found["items"][0]["at"].endswith("Z")


def test_csv_has_a_line_an_item_as_rfc_4180_requires():
    text = advised(advice.everything(), "recommend", "-o", "csv").stdout_bytes.decode()
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert text.count("\r\n") == text.count("\n") == len(rows) + 1
    assert [row["finding"] for row in rows] == [each.kind for each in advice.everything().items]
    fits = next(row for row in rows if row["finding"] == "mig_fit")
    assert (float(fits["gpu_hours_per_day"]), fits["memory_peak_bytes"]) == (17.1, str(int(13.2 * advice.GIB)))
    assert rows[0]["money_per_day"] == ""


def test_no_cell_of_csv_is_a_formula():
    gang = next(
        row for row in csv.DictReader(io.StringIO(declared_class("-o", "csv"))) if row["finding"] == "gang_oversized"
    )
    assert (gang["namespace"], gang["name"]) == ("'@cmd", "'=HYPERLINK(1)")
    setting = next(
        row for row in csv.DictReader(io.StringIO(declared_class("-o", "csv"))) if row["finding"] == "preallocated"
    )
    assert setting["recommended"].startswith("'--gpu")


def test_the_commands_are_a_script_that_a_shell_can_read(tmp_path):
    text = declared_class("-o", "apply")
    assert subprocess.run(["sh", "-n"], input=text, text=True, check=False).returncode == 0
    assert text.count("# confidence medium, good until 2026-09-28 ") == 2
    commands = [shlex.split(line)[0] for line in text.splitlines() if line.startswith("kubectl")]
    assert len(commands) == 2
    block = text.partition("<<'END-OF-FILE'\n")[2].partition("END-OF-FILE")[0]
    assert fast_yaml.load(block)["version"] == "v1"


def test_no_name_leaves_its_comment():
    hostile = replace(advice.idle(), why="first\nrm -rf /\nlast")
    text = declared_class("-o", "apply", body=lambda: advice.body(hostile))
    assert [line for line in text.splitlines() if line.startswith("rm")] == []


def test_names_can_be_asked_for():
    first = declared_class("-o", "name").splitlines()[0].removeprefix("recommendation/")
    assert [item["id"] for item in items(first)] == [first]


def test_who_cannot_tell_what_was_is_wrong_to_ask():
    found = run("--source", "sim", "recommend")
    assert found.exit_code == 2
    assert "sizes are judged by history" in found.stderr


def test_no_agent_is_1():
    assert run("--source", "agent:/nowhere.sock", "recommend").exit_code == 1


@pytest.mark.parametrize("why", [LEARNING, OFF])
def test_an_agent_that_has_no_advice_says_why_and_what_to_do(why: str):
    with serving(None, refusal=why) as path:
        found = run("--source", f"agent:{path}", "recommend")
    assert (found.exit_code, found.stdout) == (1, "")
    assert found.stderr.rstrip().endswith(f"cannot answer /api/v1/recommendations; {why}")


def test_an_agent_that_is_busy_is_1():
    found = ask(healthy(), "recommend")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "try again in a moment" in found.stderr


def test_a_scenario_is_judged_as_an_agent_would_that_had_seen_it():
    found = run("recommend", "--from-views", "sim:idle-allocated", "--duration", "1h", "-o", "json")
    document = json.loads(found.stdout)
    assert document["source"] == "sim:idle-allocated"
    assert "never_used" in {item["kind"] for item in document["items"]}
    assert document["at"] > document["since"]


def test_recorded_views_are_judged_from_a_pipe():
    recorded = "\n".join(msgspec.json.encode(view).decode() for view in (healthy(), later(healthy(), 30.0)))
    found = run("recommend", "--from-views", "-", stdin=recorded)
    assert (found.exit_code, found.exception) == (0, None)
    assert found.stdout.startswith("no recommendations; ")
    assert run("recommend", "--from-views", "-", stdin="").exit_code == 2


@pytest.mark.parametrize("packed", [True, False])
def test_an_end_that_is_still_written_is_left_out_and_reported(tmp_path: Path, packed: bool):
    lines = b"\n".join(msgspec.json.encode(later(healthy(), 30.0 * number)) for number in range(20))
    file = tmp_path / "views"
    file.write_bytes(gzip.compress(lines)[:-100] if packed else lines[:-100])
    found = run("recommend", "--from-views", str(file))
    assert (found.exit_code, f"{file} ends in the middle" in found.stderr) == (0, True)
    assert found.stdout.startswith("no recommendations; ")


@pytest.mark.parametrize("packed", [True, False])
def test_nothing_but_a_cut_end_is_no_answer(tmp_path: Path, packed: bool):
    (tmp_path / "views").write_bytes(gzip.compress(b"{" * 1000, mtime=0)[:-5] if packed else b'{"schema": 1')
    found = run("recommend", "--from-views", str(tmp_path / "views"))
    assert found.exit_code in (1, 2)
    assert found.stdout == ""


def later(view, seconds: float):
    return replace(view, snapshot=replace(view.snapshot, at=view.snapshot.at + seconds))


def test_two_sources_are_one_too_many():
    found = run("--source", "agent", "recommend", "--from-views", "-", stdin="")
    assert (found.exit_code, "two sources are named" in found.stderr) == (2, True)


@pytest.mark.parametrize("wrong", [("",), ("nonsense",), ("http://127.0.0.1:1", "--window", "fortnight")])
def test_a_prometheus_that_is_none_is_wrong_usage(wrong: tuple[str, ...]):
    assert run("recommend", "--from-prometheus", *wrong).exit_code == 2


def test_without_an_agent_its_checkpoint_is_judged_and_its_age_reported(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(client, "agent_sockets", lambda settings: ())  # an agent may listen on this machine's
    at = time.time() - 7200
    ledger = UsageLedger(RightsizingConfig())
    for minute in range(60):
        window = UsageWindow(
            at=at + 60 * minute,
            span=60,
            covered=60,
            key=WorkloadKey(namespace="nlp", name="chat"),
            pod="chat-0",
            gpu=uuid(0),
            busy=0.0,
            processes=0,
        )
        ledger.add(window)
    usage_checkpoint.save(tmp_path / usage_checkpoint.NAME, ledger.state())
    found = run("recommend", "--state-dir", str(tmp_path), "-o", "json")
    assert json.loads(found.stdout)["workloads"] == 1
    assert "its last reading was 1h ago" in found.stderr
    usage_checkpoint.save(tmp_path / usage_checkpoint.NAME, replace(ledger.state(), at=1e12))
    odd = run("recommend", "--state-dir", str(tmp_path), "-o", "json")
    assert "it holds impossible values" in odd.stderr
    assert json.loads(odd.stdout) == json.loads(found.stdout)  # by the one before
    nobody = run("recommend", "--state-dir", str(tmp_path / "empty"))
    assert nobody.exit_code == 1
    assert "no usage of these GPUs is recorded" in nobody.stderr


def test_a_folder_gets_data_and_manifests(tmp_path: Path):
    folder = tmp_path / "deep" / "weekly"
    found = advised(advice.everything(), "recommend", "--output-dir", str(folder))
    assert found.exit_code == 0
    assert "begin with" in found.stderr
    assert len(found.stdout.splitlines()) > len(advice.everything().items), "the table is printed all the same"
    assert len(json.loads((folder / "recommendations.json").read_text())["items"]) == 7
    assert (folder / "recommendations.csv").read_bytes().count(b"\r\n") == 8
    manifests = {path.name: fast_yaml.load(path.read_text()) for path in (folder / "manifests").iterdir()}
    assert manifests["mig-fit-1f3a9c.pod_patch.yaml"] == advice.PATCH
    assert len(manifests) == 2


def test_manifests_of_last_week_go_and_nobody_elses(tmp_path: Path):
    manifests = tmp_path / "manifests"
    assert advised(advice.everything(), "recommend", "--output-dir", str(tmp_path)).exit_code == 0
    (manifests / "mine.yaml").write_text("mine")
    assert advised(advice.body(advice.mig()), "recommend", "--output-dir", str(tmp_path)).exit_code == 0
    assert sorted(path.name for path in manifests.iterdir()) == ["mig-fit-1f3a9c.pod_patch.yaml", "mine.yaml"]


def test_manifests_of_last_week_stay_where_new_ones_cannot_be_written(tmp_path: Path):
    """As on a full disk: the script of last week is there still, and names them."""
    (tmp_path / "apply.sh").mkdir()
    (tmp_path / "manifests").mkdir()
    (old := tmp_path / "manifests/mig-fit-000000.pod_patch.yaml").write_text("old")
    assert advised(advice.everything(), "recommend", "--output-dir", str(tmp_path)).exit_code == 1
    assert old.exists()


@pytest.mark.parametrize("name", ["apply.sh", "recommendations.json", "manifests/mig-fit-1f3a9c.pod_patch.yaml"])
def test_a_link_in_the_folder_is_replaced_and_not_followed(tmp_path: Path, name: str):
    """Another user may have put it there: the folder of a weekly job is often open."""
    folder, other = tmp_path / "report", tmp_path / "other"
    other.write_text("precious")
    link = folder / name
    link.parent.mkdir(parents=True)
    link.symlink_to(other)
    assert advised(advice.everything(), "recommend", "--output-dir", str(folder)).exit_code == 0
    assert (other.read_text(), link.is_symlink()) == ("precious", False)


def test_a_link_in_the_place_of_the_manifests_is_refused(tmp_path: Path):
    """Manifests of an earlier time are removed, which must not be done elsewhere."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "mig-fit-000000.pod_patch.yaml").write_text("precious")
    (folder := tmp_path / "report").mkdir()
    (folder / "manifests").symlink_to(other)
    found = advised(advice.everything(), "recommend", "--output-dir", str(folder))
    assert found.exit_code == 1
    assert f"cannot use {folder / 'manifests'}" in found.stderr
    assert [path.name for path in other.iterdir()] == ["mig-fit-000000.pod_patch.yaml"]


def test_a_folder_that_cannot_be_written_is_1_and_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    found = advised(advice.everything(), "recommend", "--output-dir", str(tmp_path / "file"))
    assert found.exit_code == 1
    assert f"cannot use {tmp_path / 'file'}" in found.stderr


def test_manifests_of_one_kind_get_names_of_their_own():
    twice = replace(advice.layout(), apply=advice.layout().apply * 2)
    names = [name for name, _ in files(twice)]
    assert names == ["mig-layout-1f3a9c.mig_parted.yaml", "mig-layout-1f3a9c.mig_parted-2.yaml"]


def test_ctrl_c_while_it_reads_is_130():
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
    with started("recommend", "--from-views", "-", **pipes) as process:
        process.stdin.write(msgspec.json.encode(healthy()) + b"\n" + b" " * (1 << 17) + b"\n" * (1 << 17))
        process.stdin.flush()
        code, _, errors = interrupted(process)
    assert (code, errors.strip()) == (130, b"")


def printed_until(terminal: int, wanted: bytes) -> None:
    """Read a terminal until `wanted` has come; fails where its other end closes before."""
    shown = b""
    while wanted not in shown:
        assert select.select([terminal], [], [], BOUND_SECONDS)[0], shown
        shown += os.read(terminal, 4096)


def test_a_person_at_a_terminal_sees_how_far_it_is_and_a_file_of_errors_does_not():
    terminal, end = pty.openpty()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": end}
    words = ("recommend", "--from-views", "-", "-o", "json")
    with started(*words, variables={"TERM": "xterm"}, **pipes) as process:
        os.close(end)
        process.stdin.write(msgspec.json.encode(healthy()))
        process.stdin.close()
        printed_until(terminal, b"reading views")
        out = process.stdout.read()
        assert process.wait(BOUND_SECONDS) == 0
    os.close(terminal)
    assert json.loads(out)["kind"] == "RecommendationList", "the bar is not among the data"
    quiet = run("recommend", "--from-views", "-", stdin=msgspec.json.encode(healthy()).decode())
    assert "reading views" not in quiet.stderr


def test_who_plays_days_sees_how_many_hours_are_done():
    terminal, end = pty.openpty()
    play = ("recommend", "--from-views", "sim:idle-allocated", "--duration", "2d", "-o", "name")
    variables = {"TERM": "xterm", "COLUMNS": "80"}
    with started(*play, variables=variables, stdout=subprocess.DEVNULL, stderr=end) as process:
        os.close(end)
        printed_until(terminal, b"playing 2d")
        printed_until(terminal, b"/48")
        assert interrupted(process)[0] == 130
    os.close(terminal)
