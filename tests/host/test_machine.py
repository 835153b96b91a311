"""Which machine and boot this is, from files that may be missing, empty or not for us."""

from pathlib import Path

from gpuwatch.host.machine import LONGEST_LINE, boot_id_file, first_line, machine
from gpuwatch.model.snapshot import Host


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_the_three_names_of_a_machine(tmp_path: Path) -> None:
    write(boot_id_file(tmp_path / "proc"), "af39-boot\n")
    write(tmp_path / "etc/machine-id", "6b7c\n")
    write(tmp_path / "sys/class/dmi/id/product_uuid", "EC2-0001\n")
    found = machine(tmp_path / "proc", tmp_path / "sys", tmp_path / "etc/machine-id")
    assert found == Host(boot_id="af39-boot", machine_id="6b7c", system_uuid="EC2-0001")


def test_what_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    write(tmp_path / "etc/machine-id", "\n")
    write(tmp_path / "sys/class/dmi/id/product_uuid/no-file", "")
    assert machine(tmp_path / "proc", tmp_path / "sys", tmp_path / "etc/machine-id") == Host()


def test_the_boot_id_of_this_machine_is_there() -> None:
    assert machine(Path("/proc"), Path("/sys")).boot_id


def test_of_a_file_that_is_not_one_line_only_that_line_is_read(tmp_path: Path) -> None:
    """A copied tree may have 4 MiB there: a name of that length took minutes to show, and to redact in a bundle."""
    (tmp_path / "hostname").write_text("node-1\n" + "x" * 10_000_000)
    assert first_line(tmp_path / "hostname") == "node-1"
    (tmp_path / "hostname").write_text("x" * 10_000_000)
    assert len(first_line(tmp_path / "hostname") or "") == LONGEST_LINE
