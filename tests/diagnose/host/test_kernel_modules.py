"""What the kernel says of the driver, from files as it writes them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnose.host.kernel_modules import Kernel, Module, kernel, parameters, version_line

SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for folder in ("proc", "sys"):
        (tmp_path / folder).mkdir()
    return tmp_path


def read(host: Path) -> Kernel:
    return kernel(host, host / "proc", host / "sys")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n"
            "GCC version:  gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04)\n",
            ("535.104.05", "proprietary", "x86_64"),
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs-builder@U22-I3)\n",
            ("570.86.15", "open", "x86_64"),
        ),
        (
            "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  560.35.03  Release Build  (dvs-builder@U16)\n",
            ("560.35.03", "open", "aarch64"),
        ),
        ("GCC version:  gcc version 11.4.0\n", (None, None, None)),
        ("", (None, None, None)),
    ],
)
def test_the_version_names_kind_and_machine(text: str, found: tuple[str | None, ...]) -> None:
    assert version_line(text) == found


def test_modules_with_and_without_counts(host: Path) -> None:
    write(
        host / "proc/modules",
        "nvidia_uvm 2076672 4 - Live 0x0000000000000000 (POE)\n"
        "nvidia 56770560 121 nvidia_uvm,nvidia_modeset, Live 0xffffffffc1000000 (POE)\n"
        "ipmi_si 73728 - - Unloading 0x0\nhalf a line\nword size 1 - Live 0x0\n",
    )
    found = read(host)
    assert found.modules == {
        "nvidia_uvm": Module(size=2076672),
        "nvidia": Module(size=56770560),
        "ipmi_si": Module(size=73728, state="Unloading"),
    }
    assert found.is_loaded


def test_a_host_without_driver_is_known_to_have_none(host: Path) -> None:
    write(host / "proc/modules", "overlay 212992 35 - Live 0x0\n")
    found = read(host)
    assert not found.is_loaded
    assert (found.driver, found.module, found.own_module, found.secure_boot) == (None, None, None, None)


def test_secure_boot_is_the_fifth_byte(host: Path) -> None:
    for content, is_on in ((b"\x06\0\0\0\x01", True), (b"\x06\0\0\0\0", False), (b"\x01", None)):
        write(host / "sys" / SECURE_BOOT, content)
        assert read(host).secure_boot is is_on
    write(host / "sys/module/module/parameters/sig_enforce", "Y\n")
    assert read(host).signatures_enforced is True


def test_modules_are_kept_out_by_files_and_by_the_command_line(host: Path) -> None:
    write(host / "etc/modprobe.d/a.conf", "# blacklist radeon\nblacklist nouveau\noptions nouveau modeset=0\n")
    write(host / "usr/lib/modprobe.d/b.conf", "install nvidia-drm /bin/false\ninstall floppy /sbin/floppy\n")
    write(
        host / "proc/cmdline", "ro module_blacklist=nvidia,ast modprobe.blacklist=i915 rd.driver.blacklist=nova-core\n"
    )
    assert read(host).blacklisted == ("ast", "i915", "nouveau", "nova_core", "nvidia", "nvidia_drm")


def test_in_a_container_the_disk_is_not_the_hosts(host: Path) -> None:
    write(host / "lib/modules/1.2/modules.dep", "nvidia.ko:\n")
    write(host / "proc/sys/kernel/osrelease", "1.2\n")
    assert read(host).installed is not None
    hidden = kernel(None, host / "proc", host / "sys")
    assert (hidden.release, hidden.installed, hidden.headers, hidden.blacklisted) == ("1.2", None, None, None)


@given(st.text())
def test_parsers_take_any_text(text: str) -> None:
    version, flavor, _ = version_line(text)
    assert (version is None) == (flavor is None)
    assert all(isinstance(value, str) for value in parameters(text).values())
    assert version_line(f"NVRM version: {text}")[1] in (None, "open", "proprietary")


@given(lines=st.lists(st.text(alphabet="nvidia 0123-,x(", max_size=40), max_size=5))
def test_any_list_of_modules_is_read(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    root = tmp_path_factory.mktemp("host")
    write(root / "proc/modules", "\n".join(lines))
    assert kernel(root, root / "proc", root / "sys").release is None
