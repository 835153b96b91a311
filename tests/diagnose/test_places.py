"""Where the files of a host are: this machine's own, its root mounted elsewhere, a copy of another one."""

from pathlib import Path

import pytest

from gpuwatch.config import SourcesConfig
from gpuwatch.diagnose.places import Places


def host(root, boot_id):
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text(f"{boot_id}\n")
    return root


def test_a_root_with_the_kernel_in_it_is_this_machine_mounted_there():
    mounted = "/proc/self/root"  # /proc and /sys lie below it as they do below a mounted root
    places = Places.of(mounted, SourcesConfig(), "/state")
    assert (places.live, places.plain, places.hidden) == (True, False, False)
    named = (places.proc, places.sys, places.dev, places.machine_id, places.pod_resources)
    assert all(path.startswith(mounted) for path in named)
    assert places.kmsg == "/dev/kmsg"


@pytest.mark.parametrize("link", ["proc/sys/kernel/random/boot_id", "proc", "sys"])
def test_a_copy_does_not_become_this_machine_by_its_files(tmp_path, link):
    copy = host(tmp_path / "copy", Path("/proc/sys/kernel/random/boot_id").read_text().strip())
    (copy / "sys").mkdir()
    (copy / link).rename(tmp_path / "aside")
    (copy / link).symlink_to(f"/{link}")
    assert not Places.of(str(copy), SourcesConfig(), "/state").live


def test_any_other_root_is_a_copy(tmp_path):
    ours, other = host(tmp_path / "ours", "a-b-c"), host(tmp_path / "other", "d-e-f")
    places = Places.of(str(other), SourcesConfig(proc=str(ours / "proc")), "/state")
    assert not places.live
    assert places.kmsg.startswith(str(other))


def test_the_machine_itself_is_where_the_settings_say():
    sources = SourcesConfig(proc="/host/proc", machine_id="/host/machine-id")
    places = Places.of("/", sources, "/state")
    assert (places.proc, places.machine_id, places.state, places.live) == (
        "/host/proc",
        "/host/machine-id",
        "/state",
        True,
    )
