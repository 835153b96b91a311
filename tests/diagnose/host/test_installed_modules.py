"""For which kernels the nvidia module lies on the disk, and what DKMS knows of it."""

from pathlib import Path

from gpuwatch.diagnose.host.kernel_modules import InstalledModule, dkms_versions, has_headers, installed_modules
from tests.diagnose.host.elf_files import module

KERNEL, OLD, BARE = "6.8.0-51-generic", "6.8.0-50-generic", "5.15.0-1-generic"


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def listed(root: Path, release: str, lines: str) -> Path:
    folder = root / "lib/modules" / release
    write(folder / "modules.dep", lines)
    return folder


def test_a_module_says_what_it_is_unless_it_is_compressed(tmp_path: Path) -> None:
    folder = listed(tmp_path, KERNEL, "updates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko\nupdates/dkms/nvidia.ko:\n")
    facts = {"version": "570.86.15", "vermagic": f"{KERNEL} SMP mod_unload", "license": "Dual MIT/GPL"}
    write(folder / "updates/dkms/nvidia.ko", module(signed=True, **facts))
    old = listed(
        tmp_path, OLD, "kernel/drivers/char/ipmi.ko.zst:\nupdates/dkms/nvidia.ko.zst: kernel/drivers/video.ko\n"
    )
    write(old / "updates/dkms/nvidia.ko.zst", b"\x28\xb5\x2f\xfd")
    listed(tmp_path, BARE, "kernel/drivers/video/nvidiafb.ko:\nkernel/nvidia-uvm.ko: kernel/other.ko\n")
    assert installed_modules(tmp_path) == {
        KERNEL: InstalledModule(
            path=f"/lib/modules/{KERNEL}/updates/dkms/nvidia.ko",
            version="570.86.15",
            release=KERNEL,
            license="Dual MIT/GPL",
            signed=True,
        ),
        OLD: InstalledModule(path=f"/lib/modules/{OLD}/updates/dkms/nvidia.ko.zst"),
        BARE: None,
    }


def test_one_that_is_listed_and_gone_is_still_named(tmp_path: Path) -> None:
    listed(tmp_path, KERNEL, "/lib/modules/x/extra/nvidia.ko:\n")
    assert installed_modules(tmp_path) == {KERNEL: InstalledModule(path="/lib/modules/x/extra/nvidia.ko")}


def test_an_unsigned_module_is_distinguished(tmp_path: Path) -> None:
    folder = listed(tmp_path, KERNEL, "extra/nvidia.ko:\n")
    write(folder / "extra/nvidia.ko", module(license="NVIDIA"))
    found = installed_modules(tmp_path) or {}
    assert (found[KERNEL].license, found[KERNEL].signed) == ("NVIDIA", False)  # type: ignore[union-attr]


def test_no_kernel_is_unknown_not_none_installed(tmp_path: Path) -> None:
    assert installed_modules(tmp_path) is None
    (tmp_path / "lib/modules/leftover").mkdir(parents=True)
    assert installed_modules(tmp_path) is None


def test_headers_are_there_when_the_link_leads_somewhere(tmp_path: Path) -> None:
    folder = listed(tmp_path, KERNEL, "")
    assert not has_headers(tmp_path, KERNEL)
    (folder / "build").symlink_to(f"/usr/src/linux-headers-{KERNEL}")
    assert not has_headers(tmp_path, KERNEL)
    (tmp_path / f"usr/src/linux-headers-{KERNEL}").mkdir(parents=True)
    assert has_headers(tmp_path, KERNEL)


def test_dkms_knows_versions_and_a_link_to_the_running_one(tmp_path: Path) -> None:
    assert dkms_versions(tmp_path) == ()
    (tmp_path / "var/lib/dkms/nvidia/570.86.15/source").mkdir(parents=True)
    (tmp_path / "var/lib/dkms/nvidia/kernel-6.8.0-x86_64").symlink_to("570.86.15")
    assert dkms_versions(tmp_path) == ("570.86.15",)
