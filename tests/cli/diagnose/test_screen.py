"""The screen of `diagnose` where its words differ from the document's: repeated remedies, parts that were not read."""

from typing import get_args

import pytest

from gpuwatch.cli.console.terminal import UNICODE
from gpuwatch.cli.console.words import Words
from gpuwatch.cli.diagnose.screen import SECTIONS, Screen
from gpuwatch.diagnose.check import CheckContext
from gpuwatch.diagnose.checks.remedies import REBOOT_NODE, RESET_GPU
from gpuwatch.diagnose.checks.table import CHECKS
from gpuwatch.diagnose.engine import diagnose
from gpuwatch.diagnose.facts import HOST_SECTIONS, NodeFacts, Section
from gpuwatch.diagnose.model import CheckResult, CheckStage, CheckStatus, Diagnosis
from tests.diagnose.checks.broken_gpus import happens
from tests.diagnose.hosts import Host

WIDTH = 4000
"""Columns that break no text."""


def shown(diagnosis, facts=None, *, wide=False):
    lines = Screen(Words(UNICODE, 0.0), WIDTH, wide=wide).lines(diagnosis, facts or NodeFacts(at=0.0))
    return " ".join(" ".join(line.plain for line in lines).split())


def of_remedies(**remedies):
    results = [
        CheckResult(id=id_, stage=CheckStage.HEALTH, title="t", result=CheckStatus.FAIL, message="m", remedy=remedy)
        for id_, remedy in remedies.items()
    ]
    return Diagnosis(results=tuple(results))


def test_a_sick_gpu_has_its_reset_reported_once(tmp_path):
    host = Host(tmp_path)
    happens({"do": "ecc", "gpu": 1, "count": 2}, {"do": "xid", "gpu": 1, "xid": 95}, {"do": "remap", "gpu": 1})(host)
    facts = host.facts()
    found = diagnose(CheckContext(facts), CHECKS, stages=frozenset({CheckStage.HEALTH}))
    repeated = [result.id for result in found.results if RESET_GPU.text in result.remedy]
    assert found.first.id in repeated
    assert len(repeated) > 1
    assert shown(found, facts).count(RESET_GPU.text) == 1
    reference = f"Drain the node, then reset the GPU, as for {found.first.id}."
    assert shown(found, facts).count(reference) == len(repeated) - 1
    assert shown(found, facts, wide=True).count(RESET_GPU.text) == len(repeated)


def test_what_only_one_check_says_is_reported_in_full():
    told = shown(of_remedies(G02=f"{RESET_GPU.text} Then wait.", G03=f"Look first. {RESET_GPU.text} Then replace it."))
    assert f"{RESET_GPU.text} Then wait." in told
    assert "→ Look first. Drain the node, then reset the GPU, as for G02. Then replace it." in told


@pytest.mark.parametrize("remedy", [REBOOT_NODE.text, "Drain the node. Look at it."])
def test_another_or_a_short_remedy_is_reported_in_full(remedy):
    first = RESET_GPU.text if remedy == REBOOT_NODE.text else remedy
    assert "as for" not in shown(of_remedies(G02=first, G03=remedy))
    assert remedy in shown(of_remedies(G02=first, G03=remedy)).split("G03", 1)[1]


def test_every_part_that_may_not_be_seen_has_words_for_people():
    assert set(SECTIONS) == {*get_args(Section), "agent"}
    unread = dict.fromkeys(("bus", "nodes", "limits"), "permission denied")
    told = shown(Diagnosis(), NodeFacts(at=0.0, unread=unread))
    assert told.endswith(
        "not read: the PCI bus, device files in /dev, limits of processes and shared memory: permission denied"
    )


def test_all_files_of_the_host_are_one_thing():
    unread = dict.fromkeys((*HOST_SECTIONS, "cluster"), "the agent is of another machine")
    told = shown(Diagnosis(), NodeFacts(at=0.0, unread=unread))
    assert told.endswith("not read: everything of the host, the Kubernetes API: the agent is of another machine")
