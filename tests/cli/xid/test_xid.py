"""The xid commands: the catalogue offline, and kernel lines in, JSON out."""

import csv
import json
import subprocess
from pathlib import Path

import pytest
import yaml

from gpuwatch.cli.xid.decode import SENTENCES
from gpuwatch.model.xid_catalogue import all_xids
from tests.cli.commands import run
from tests.cli.processes import started
from tests.waiting import BOUND_SECONDS

SAMPLES = Path(__file__).parents[2] / "collect" / "kernel_log" / "data" / "kmsg_samples.tsv"
FIELDS = (
    "kind", "pci", "xid", "sxid", "pid", "name", "gi", "ci", "message", "recovery", "nvlink", "caused_by",
)  # fmt: skip


def samples() -> list[dict[str, str]]:
    with SAMPLES.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_parse_reads_every_sample_to_its_fields():
    rows = samples()
    lines = run("xid", "parse", stdin="\n".join(row["line"] for row in rows)).stdout.splitlines()
    found = [json.loads(line) for line in lines]
    assert len(found) == len(rows)
    for line, row in zip(found, rows, strict=True):
        assert line["kind"] == row["kind"]
        assert (line["pci"] or "")[:12] == row["pci"][:12]
        told = line["sxid"] if row["kind"].startswith("sxid") else line["xid"]
        assert str(told if told is not None else "") == row["xid"]


def test_parse_says_null_for_what_a_line_does_not_show():
    found = json.loads(
        run("xid", "parse", stdin="NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n").stdout
    )
    assert {name: found[name] for name in FIELDS} == dict.fromkeys(FIELDS) | {
        "kind": "xid",
        "pci": "0000:01:00",
        "xid": 79,
        "message": "GPU has fallen off the bus.",
    }


def test_parse_reads_a_file_with_bytes_that_are_no_text(tmp_path):
    log = tmp_path / "dmesg"
    log.write_bytes(b"\xff\xfe noise\nNVRM: Xid (PCI:0000:01:00): 31, pid=7, name=\xff, MMU Fault\n")
    kinds = [json.loads(line)["kind"] for line in run("xid", "parse", str(log)).stdout.splitlines()]
    assert kinds == ["other", "xid"]


def test_parse_answers_while_the_log_continues():
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with started("xid", "parse", **pipes) as process:
        process.stdin.write("NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=a, Graphics Exception\n")
        assert json.loads(process.stdout.readline())["xid"] == 13
        process.stdin.close()
        assert process.wait(BOUND_SECONDS) == 0


def test_a_missing_file_is_a_usage_error():
    result = run("xid", "parse", "/nowhere/dmesg")
    assert result.exit_code == 2
    assert "No such file" in result.stderr


@pytest.mark.parametrize("code", [info.code for info in all_xids()])
def test_every_code_is_explained_within_100_columns(code):
    result = run("xid", "explain", str(code))
    assert result.exit_code == 0
    assert result.stdout.startswith(f"XID {code}  ")
    assert max(map(len, result.stdout.splitlines())) <= 100


@pytest.mark.parametrize("info", all_xids(), ids=lambda info: str(info.code))
def test_every_action_word_has_plain_words(info):
    assert {word for word in (info.action, info.nvidia, info.investigate) if word} <= set(SENTENCES)


RECOVERY_LINE = "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to {} (Some Words)"


@pytest.mark.parametrize(
    ("line", "first", "told"),
    [
        (RECOVERY_LINE.format("0x1"), "1. reset the GPU", "1 GPU_RESET"),
        (RECOVERY_LINE.format("0x2"), "1. drain the node and reboot it", "2 NODE_REBOOT"),
        (RECOVERY_LINE.format("0x0"), "do        nothing", "0 NONE"),
        (RECOVERY_LINE.format("0x63"), "1. look at the machine", "newer than this table"),
        ("NVRM: Xid (PCI:0000:01:00): 64, Row Remapping table is full", "1. have the GPU replaced", "no spare rows"),
        ("NVRM: Xid (PCI:0000:01:00): 64, A row already pending remapping", "do        nothing", "benign"),
        ("NVRM: Xid (PCI:0000:01:00): 64, something else", "1. reset the GPU", "as the number alone says"),
    ],
)
def test_a_line_that_decides_overrules_its_number(line, first, told):
    text = run("xid", "explain", line).stdout
    advice = text[text.index("What to do") :]
    assert first in advice
    assert told in text


@pytest.mark.parametrize(
    ("code", "settings", "told"),
    [
        ("79", {}, ("xid_fatal", "taint: taint gpuwatch.io/gpu-fault", "(default)", "mode       observe")),
        ("79", {"checks": {"xid_fatal": "drain"}}, ("drain: taint", "(remediation.checks.xid_fatal)")),
        ("79", {"xids": {79: "observe"}}, ("observe: it is shown", "(remediation.xids.79)")),
        ("31", {"mode": "enforce"}, ("xid_application", "observe: it is shown")),
        ("149", {}, ("its line decides", "xid_fatal")),
    ],
)
def test_it_says_what_the_policy_in_force_does(tmp_path, code, settings, told):
    config = tmp_path / "gpuwatch.yaml"
    config.write_text(yaml.safe_dump({"remediation": settings}))
    text = run("--config", str(config), "xid", "explain", code).stdout
    doing = text[text.index("What gpuwatch does") : text.index("What to do")]
    for words in told:
        assert words in doing


def test_it_says_that_a_check_is_ignored(tmp_path):
    config = tmp_path / "gpuwatch.yaml"
    config.write_text("checks: {ignore: [xid_fatal]}")
    text = run("--config", str(config), "xid", "explain", "79").stdout
    assert "(checks.ignore)" in text
    assert "taint gpuwatch.io/gpu-fault" not in text


def test_who_had_the_channel_is_named_and_not_at_fault():
    line = "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 45, pid=77, name=python3, Ch 00000001 caused by previous Xid 149"
    text = run("xid", "explain", line).stdout
    assert "python3 (pid 77): had the channel, did not cause it" in text
    assert "GPU 0000:01:00, GPU instance 5" in text
    assert "gpuwatch xid explain 149" in text


@pytest.mark.parametrize("text", ["seventynine", "NVRM: loading NVIDIA UNIX x86_64 Kernel Module", "-79x", ""])
def test_what_is_no_xid_is_a_usage_error(text):
    result = run("xid", "explain", "--", text)
    assert result.exit_code == 2
    assert "is no XID" in result.stderr


def test_a_code_nobody_documented_is_1():
    result = run("xid", "explain", "9999")
    assert result.exit_code == 1
    assert "XID 9999 is not documented" in result.stderr


def test_the_list_can_be_narrowed():
    def codes(*args: str) -> set[int]:
        return {item["code"] for item in json.loads(run("xid", "list", "-o", "json", *args).stdout)["items"]}

    assert codes() == {info.code for info in all_xids()}
    assert codes("--category", "application") == {info.code for info in all_xids() if info.category == "application"}
    assert codes("--taint") == {info.code for info in all_xids() if info.taint}
    assert not codes("--taint", "--category", "application")


def test_a_number_of_many_digits_is_no_xid():
    result = run("xid", "explain", "1" * 5000)
    assert result.exit_code == 2
    assert "is no XID" in result.stderr


def test_explain_reads_a_pasted_line_from_stdin():
    pasted = "what we saw:\n[...] 10.0.0.5: kern: warning: NVRM: Xid (PCI:0000:0f:00): 79, pid=1, gone"

    result = run("xid", "explain", "-", stdin=pasted)
    assert result.exit_code == 0
    assert "XID 79" in result.stdout
    assert run("xid", "explain", "-", stdin="nothing").exit_code == 2
