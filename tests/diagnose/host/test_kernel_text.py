"""The kernel's lines about GPUs, from the kernel itself or from what some logger has kept."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.host.kernel_text import KernelMessage, kernel_text

XID = "NVRM: Xid (PCI:0000:61:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def texts(*files: Path, kmsg: Path = Path("/nowhere/kmsg")) -> list[str]:
    return [line.text for line in kernel_text(kmsg, files)]


def test_of_the_kernels_own_records_only_those_of_the_kernel_about_gpus_count(tmp_path: Path) -> None:
    kmsg = tmp_path / "kmsg"
    kmsg.write_text(
        f"6,1,5000000,-;usb 1-1: new device\n4,2,6500000,-;{XID}\n SUBSYSTEM=pci\n12,3,7000000,-;NVRM: forged\n"
        "6,4,8000000,-;nvidia 0000:61:00.0: enabling device (0140 -> 0142)\n"
    )
    assert kernel_text(kmsg) == (
        KernelMessage(text=XID, at=6.5),
        KernelMessage(text="nvidia 0000:61:00.0: enabling device (0140 -> 0142)", at=8.0),
    )


def test_a_pipe_is_left_to_its_reader(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kmsg")
    copy = tmp_path / "kern.log"
    copy.write_text(f"[   12.000000] {XID}\n")
    assert texts(copy, kmsg=tmp_path / "kmsg") == [XID]
    with pytest.raises(OSError, match="another process"):
        kernel_text(tmp_path / "kmsg")


@pytest.mark.parametrize(
    "prefix",
    [
        "Jan 16 14:04:39 gpu-7 kernel: [4464{}.002866] ",
        "2026-01-16T14:04:39.12345{}+00:00 gpu-7 kernel: ",
        "<4>[4464{}.002866] ",
        "[4464{}.002866] ",
    ],
)
def test_a_copy_counts_from_its_last_boot(tmp_path: Path, prefix: str) -> None:
    lines = ("Linux version 6.8", "NVRM: from before", "Linux version 6.8", "ACPI: nothing", XID)
    (tmp_path / "kern.log").write_text("".join(f"{prefix.format(at)}{line}\n" for at, line in enumerate(lines)))
    assert texts(tmp_path / "kern.log") == [XID]


def test_another_programs_words_are_not_the_kernels(tmp_path: Path) -> None:
    (tmp_path / "messages").write_text(f"Jan 16 14:04:39 gpu-7 app[7]: {XID}\n<13>[   12.000000] {XID}\n")
    assert not any(text.startswith("NVRM") for text in texts(tmp_path / "messages"))


def test_the_first_copy_that_can_be_read_is_taken(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("NVRM: b\n")
    (tmp_path / "c").write_text("NVRM: c\n")
    assert texts(tmp_path / "a", tmp_path / "b", tmp_path / "c") == ["NVRM: b"]


def test_three_lines_about_one_gpu_are_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "[    9.0] NVRM: The NVIDIA GPU 0000:61:00.0 (PCI ID: 10de:2330)\n"
        "[    9.0] NVRM: installed in this system is not supported by the\n[    9.0] NVRM: NVIDIA 470.57.02 driver.\n"
    )
    assert "\nNVRM: installed in this system" in texts(tmp_path / "log")[0]


def test_no_log_at_all_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="kmsg"):
        kernel_text(tmp_path / "kmsg", (tmp_path / "absent",))


@given(content=st.binary(max_size=300))
def test_any_bytes_are_a_log(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("log") / "kern.log"
    file.write_bytes(content)
    assert all(line.at is None or line.at >= 0 for line in kernel_text(Path("/nowhere/kmsg"), (file,)))
