"""Where the files of a host are: this machine's own, its root mounted elsewhere, a copy of another one."""

from gpuwatch.config import SourcesConfig
from gpuwatch.diagnose.places import Places


def host(root, boot_id):
    (root / "proc/sys/kernel/random").mkdir(parents=True)
    (root / "proc/sys/kernel/random/boot_id").write_text(f"{boot_id}\n")
    return root


def test_a_root_of_this_boot_is_this_machine_mounted_there(tmp_path):
    ours, mounted = host(tmp_path / "ours", "a-b-c"), host(tmp_path / "mounted", "a-b-c")
    places = Places.of(str(mounted), SourcesConfig(proc=str(ours / "proc")), "/state")
    assert (places.live, places.plain, places.hidden) == (True, False, False)
    named = (places.proc, places.sys, places.dev, places.machine_id, places.pod_resources)
    assert all(path.startswith(str(mounted)) for path in named)
    assert places.kmsg == "/dev/kmsg"


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
