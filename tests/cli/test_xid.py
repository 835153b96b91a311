"""The xid commands: the catalogue offline, and kernel lines in, JSON out."""

import csv
import json
from pathlib import Path

import pytest

from gpuwatch.model.xid_catalogue import all_xids
from tests.cli.conftest import run
from tests.cli.processes import COMMAND, environment

SAMPLES = Path(__file__).parent.parent / "sources" / "data" / "kmsg_samples.tsv"
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


def test_parse_says_null_for_what_a_line_does_not_tell():
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


def test_parse_answers_while_the_log_goes_on():
    import subprocess

    process = subprocess.Popen(
        [*COMMAND, "xid", "parse"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
        bufsize=1,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("NVRM: Xid (PCI:0000:01:00): 13, pid=1, name=a, Graphics Exception\n")
    assert json.loads(process.stdout.readline())["xid"] == 13
    process.stdin.close()
    assert process.wait(10) == 0
    process.stdout.close()


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
