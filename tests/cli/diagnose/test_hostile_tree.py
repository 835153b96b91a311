"""A tree from a stranger is data: `diagnose` runs nothing of it, and shows and packs nothing of this machine."""

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.cli.commands import run
from tests.diagnose.bundling.bundles import bundle, unpacked
from tests.diagnose.hosts import Host
from tests.seeds import seeded

BOOT_ID = "proc/sys/kernel/random/boot_id"
LIBRARY = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
SECRET = "canary-of-this-machine"
CONSTRUCTOR = """
#include <stdio.h>
__attribute__((constructor)) static void loaded(void) {{ fclose(fopen("{mark}", "w")); }}
"""
KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: a
contexts: [{{name: a, context: {{cluster: a, user: a}}}}]
clusters: [{{name: a, cluster: {{server: "https://127.0.0.1:1"}}}}]
users: [{{name: a, user: {{exec: {{apiVersion: client.authentication.k8s.io/v1, command: /bin/sh, args: [-c, "touch {mark}"], interactiveMode: Never}}}}}}]
"""  # noqa: E501
QUICK = ("diagnose", "--level", "quick", "--budget", "60s")


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path / "host")


@pytest.mark.parametrize("source", [(), pytest.param(("--source", "nvml"), marks=pytest.mark.slow)])
@pytest.mark.parametrize("disguise", seeded(["link", "content", "proc"]))
def test_nothing_of_a_tree_is_loaded_or_run(host, tmp_path, source, disguise):
    """Its author gave it the boot id of this machine, a library and a kubeconfig that leave a mark when they run."""
    mark, code = tmp_path / "ran", tmp_path / "library.c"
    code.write_text(CONSTRUCTOR.format(mark=mark))
    host.remove(LIBRARY)
    compiler = shutil.which("cc") or pytest.skip("no C compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", host.root / LIBRARY, code], check=True)
    shutil.copy(host.root / LIBRARY, host.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1")
    for program in ("nvidia-smi", "nvidia-ctk"):
        (host.root / "usr/bin" / program).unlink(missing_ok=True)
        host.write(f"usr/bin/{program}", f"#!/bin/sh\ntouch {mark}\n")
        (host.root / "usr/bin" / program).chmod(0o755)
    host.write("etc/kubernetes/kubelet.conf", KUBECONFIG.format(mark=mark))
    if disguise == "content":
        host.write(BOOT_ID, Path(f"/{BOOT_ID}").read_text())
    else:
        link = BOOT_ID if disguise == "link" else "proc"
        (host.root / link).parent.mkdir(parents=True, exist_ok=True)
        if (host.root / link).exists():
            (host.root / link).rename(host.root / "aside")
        (host.root / link).symlink_to(f"/{link}")
    environment = {"KUBECONFIG": None, "HOME": str(tmp_path)}
    run(*source, *QUICK, "--active", "--bundle", str(tmp_path / "case.tgz"), "--root", str(host.root), env=environment)
    assert not mark.exists()


LINKED = (
    "proc/driver/nvidia/version", "proc/cmdline", "proc/modules", "proc/sys/kernel/osrelease", "dev/kmsg",
    "sys/module/nvidia/version", "etc/machine-id", "etc/hostname", "etc/containerd/config.toml", "etc/cdi/a.yaml",
    "etc/modprobe.d/a.conf", "var/log/fabricmanager.log", "var/log/dmesg", "gpuwatch/view.json",
    "gpuwatch/cluster.json", "gpuwatch/kernel.log", "var/lib/gpuwatch/tuner/actuation.json",
    "var/lib/gpuwatch/tuner/tuner.heartbeat", "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
    "run/nvidia/validations/driver-ready",
)  # fmt: skip


@pytest.mark.parametrize("how", [pytest.param("file", marks=pytest.mark.slow), "folder"])
def test_links_show_and_pack_nothing_of_this_machine(host, tmp_path, how):
    """Each file that is read is a link to a secret here, or its folder is a link to one with such a file."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for path in LINKED:
        if how == "folder" and path.partition("/")[0] in ("gpuwatch", "dev"):
            continue
        place = host.root / path
        link, target = (place, outside / "secret") if how == "file" else (place.parent, outside)
        (outside / (place.name if how == "folder" else "secret")).write_text(f"{SECRET} NVRM: {SECRET}\n")
        if link.is_symlink():
            continue
        link.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(link) if link.is_dir() else link.unlink(missing_ok=True)
        link.symlink_to(target)
    case = tmp_path / "case.tgz"
    for output in ("wide", "json"):
        shown = run(*QUICK, "-o", output, "--bundle", str(case), "--root", str(host.root))
        assert SECRET not in shown.stdout + shown.stderr
    if case.exists():
        with tarfile.open(case) as tar:
            bodies = [file.read() for member in tar if (file := tar.extractfile(member))]
        assert bodies
        assert not any(SECRET.encode() in body for body in bodies)


def test_what_an_archive_holds_beside_plain_files_is_named_and_left_out(host, tmp_path):
    bundle(host, tmp_path / "made.tgz")
    top, archive = unpacked(tmp_path / "made.tgz", tmp_path / "out"), tmp_path / "case.tgz"
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(top, "case")
        for name, kind, target in (
            ("case/etc/passwd", tarfile.SYMTYPE, "/etc/passwd"),
            ("case/etc/hard", tarfile.LNKTYPE, "case/etc/hostname"),
            ("case/etc/pipe", tarfile.FIFOTYPE, ""),
            ("case/etc/zero", tarfile.CHRTYPE, ""),
            ("../outside", tarfile.REGTYPE, ""),
        ):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = kind, target
            tar.addfile(entry, io.BytesIO(b""))
    found = run(*QUICK, "-o", "name", "--root", str(archive))
    assert found.stdout == run(*QUICK, "-o", "name", "--root", str(top)).stdout
    shown = " ".join(found.stderr.split())
    assert "left out: " in shown
    assert "case/etc/passwd (a link)" in shown
    assert not (tmp_path / "outside").exists()
