"""Readings at the edges of the grammar: capitals, what belongs to other XIDs, and what user space has written."""

import pytest

from gpuwatch.collect.kernel_log.lines import parse_line
from gpuwatch.model.xid import NvLinkError

BODY = "NETIR_LINK_EVT  Fatal   XC0 i1 Link 01 (0x021425c6 0x00000000)"


@pytest.mark.parametrize("body", [BODY, BODY.lower(), BODY.upper()])
def test_an_nvlink_error_is_read_in_capitals_or_not(body: str) -> None:
    line = parse_line(f"NVRM: Xid (PCI:0000:01:00): 149, {body}")
    assert line.nvlink == NvLinkError(
        unit="NETIR_LINK_EVT", severity="fatal", link=1, xc=0, injected=True, words=(0x021425C6, 0)
    )


def test_a_recovery_action_is_read_in_capitals_or_not() -> None:
    text = "NVRM: Xid (PCI:0000:01:00): 154, GPU recovery action changed from 0x0 (None) to 0xA (New)"
    assert parse_line(text).recovery == 10
    assert parse_line(text.replace("recovery action", "Recovery Action")).recovery == 10


@pytest.mark.parametrize(("xid", "read"), [(143, False), (144, True), (150, True), (151, False)])
def test_only_xids_of_nvlink5_have_its_body(xid: int, read: bool) -> None:
    assert (parse_line(f"NVRM: Xid (PCI:0000:01:00): {xid}, {BODY}").nvlink is not None) is read


def test_what_user_space_writes_keeps_its_words() -> None:
    line = parse_line("12,1,1000000,-;NVRM: Xid (PCI:0000:01:00): 79, pid=1, gone\n")
    assert (line.kind, line.xid, line.message) == ("other", None, "NVRM: Xid (PCI:0000:01:00): 79, pid=1, gone")


def test_a_line_without_words_has_no_message() -> None:
    assert parse_line("12,1,1000000,-;   \n").message is None
