"""The XID catalogue is complete, consistent with itself, and cheap until it is needed."""

import subprocess
import sys

import pytest

from gpuwatch.collect.kernel_log.lines import parse_line
from gpuwatch.model.xid import NvLinkError
from gpuwatch.model.xid_catalogue import (
    all_xids,
    catalogue,
    explain,
    nvlink_advice,
    recovery_action,
    retirement_text,
)


def test_codes_are_unique_and_without_gap() -> None:
    codes = [info.code for info in all_xids()]
    assert codes == list(range(1, max(codes) + 1))
    assert all(info.description and info.name and info.causes for info in all_xids())


def test_an_application_never_taints_a_node() -> None:
    applications = [info for info in all_xids() if info.category == "application"]
    assert {13, 31, 43, 45} <= {info.code for info in applications}
    assert not [info.code for info in applications if info.taint]


def test_taint_is_for_what_a_restart_of_the_application_cannot_mend() -> None:
    harmless = {"RESTART_APP", "IGNORE", "FOLLOW_PREVIOUS_XID", "FOLLOW_XID_48"}
    assert not [info.code for info in all_xids() if info.taint and info.action in harmless]
    assert not [info.code for info in all_xids() if info.taint and info.severity != "fatal"]


@pytest.mark.parametrize(
    ("code", "category", "taint", "decided_by"),
    [
        (79, "hardware", True, None),
        (119, "driver", True, None),
        (31, "application", False, None),
        (145, "hardware", False, "nvlink"),
        (154, "unknown", False, "recovery"),
        (64, "hardware", True, "retirement"),
        (94, "hardware", False, None),
    ],
)
def test_rows_people_rely_on(code: int, category: str, taint: bool, decided_by: str | None) -> None:
    info = explain(code)
    assert info is not None
    assert (info.category, info.taint, info.decided_by) == (category, taint, decided_by)


def test_an_undocumented_code_has_no_row() -> None:
    assert explain(99_999) is None
    assert recovery_action(99) is None


def test_recovery_actions_that_need_a_person_taint() -> None:
    assert {action.value for action in catalogue().recovery_actions if action.taint} == {1, 2, 4, 6, 7}


@pytest.mark.parametrize(
    ("message", "action"),
    [
        ("Row Remapper: Error, row is already pending remapping", "IGNORE"),
        ("Row Remapper: Error, All reserved rows for bank are remapped", "CONTACT_SUPPORT"),
        ("something else", None),
    ],
)
def test_the_text_of_xid_64_decides(message: str, action: str | None) -> None:
    text = retirement_text(message)
    assert (text.action if text else None) == action


@pytest.mark.parametrize(
    ("line", "action"),
    [
        (
            "NVRM: Xid (PCI:0009:01:00): 149, NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x0)",
            "RESET_GPU",
        ),
        (
            "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1)",
            "IGNORE",
        ),
        ("NVRM: Xid (PCI:0000:5f:00): 145, RLW_REMAP Nonfatal XC0 i0 Link 02", None),
    ],
)
def test_nvlink5_lines_find_their_row(line: str, action: str | None) -> None:
    read = parse_line(line)
    assert read.xid is not None
    assert read.nvlink is not None
    advice = nvlink_advice(read.xid, read.nvlink)
    assert (advice.action if advice else None) == action


def test_every_nvlink5_row_can_be_found() -> None:
    for row in catalogue().nvlink5:
        for unit in row.units:
            error = NvLinkError(unit=unit, severity="fatal", words=(row.subcode << 20, row.error_status))
            assert nvlink_advice(row.xid, error) == row


def test_importing_it_reads_nothing() -> None:
    program = "from gpuwatch.model import xid_catalogue as c; print(c.catalogue.cache_info().currsize)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "0"
