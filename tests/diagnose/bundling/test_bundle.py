"""Bundles: complete, bounded, safe to open, made of half-broken nodes too, and judged again with the same results."""

import importlib
import json
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import msgspec
import pytest

from gpuwatch.diagnose.bundling import host_tree
from gpuwatch.diagnose.bundling.allowed_files import ALLOWED, copied
from gpuwatch.diagnose.bundling.bundle import check_target, write_bundle
from gpuwatch.diagnose.facts import HOST_SECTIONS
from gpuwatch.diagnose.gathering.probe import read_section
from gpuwatch.diagnose.gathering.recorded import recorded
from gpuwatch.diagnose.places import Places
from gpuwatch.model.errors import GpuwatchError, PermissionMissing, UsageError
from tests.diagnose.bundling.bundles import again, bundle, contents, copied_here, unpacked
from tests.diagnose.hosts import Host
from tests.seeds import a_third, seeded


def _broken(area):
    return importlib.import_module(f"tests.diagnose.checks.broken_{area}").BROKEN


SOME_BROKEN = seeded(row for area in ("machine", "fabric", "containers") for row in _broken(area)[::24])
"""Of those whose files are broken; all of them take minutes."""

NODES = {"h100": {}, "mig": {"mig": {"0": ["3g.40gb", "3g.40gb"]}}, "t4": {"model": "t4", "gpus": 2}}


def sections(places):
    """What every reader finds there, or its words."""
    found = {}
    for name in HOST_SECTIONS:
        try:
            found[name] = read_section(name, places)
        except (OSError, GpuwatchError) as error:
            found[name] = type(error).__name__
    return found


def results(diagnosis):
    return {r.id: (r.result, r.message, r.blocked_by) for r in diagnosis.results}


@pytest.fixture(scope="module")
def case(tmp_path_factory):
    """One good bundle: host, archive, and where it was taken apart."""
    place = tmp_path_factory.mktemp("case")
    host = Host(place / "host")
    written = bundle(host, place / "case.tgz")
    return host, written, place / "case.tgz", unpacked(place / "case.tgz", place / "out")


@pytest.mark.parametrize("name", a_third(NODES))
def test_a_bundle_is_judged_as_its_host(tmp_path, name):
    host = Host(tmp_path / "host", **NODES[name])
    bundle(host, tmp_path / "case.tgz")
    top = unpacked(tmp_path / "case.tgz", tmp_path / "out")
    assert sections(Places.tree(top)) == sections(Places.tree(host.root))
    assert results(again(host, top).diagnose()) == results(host.diagnose())


@pytest.mark.parametrize("row", SOME_BROKEN, ids=lambda row: f"{row.id}-{row.message[:30]}")
def test_a_bundle_of_a_broken_host_is_judged_as_the_host(tmp_path, row):
    host = Host(tmp_path / "host", **row.node)
    row.well(host)
    row.breaks(host)
    assert results(copied_here(host, tmp_path / "copy").diagnose()) == results(host.diagnose())


def test_plain_tar_lists_it_and_all_is_in_one_folder(case):
    _, written, archive, top = case
    listed = subprocess.run(
        ["tar", "tzf", str(archive)], check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert all(name.startswith(f"{top.name}/") for name in listed)
    assert len(listed) == written.files + 1
    for path in (
        "README.txt", "diagnosis.txt", "diagnosis.json", "gpuwatch/view.json", "gpuwatch/cluster.json",
        "gpuwatch/config.yaml", "gpuwatch/kernel.log", "gpuwatch/versions.json", "gpuwatch/host.json",
        "proc/modules", "etc/containerd/config.toml",
        "var/lib/kubelet/device-plugins/kubelet_internal_checkpoint",
    ):  # fmt: skip
        assert f"{top.name}/{path}" in listed, path


def test_nothing_in_it_leads_or_lies_outside(case):
    archive = case[2]
    with tarfile.open(archive) as tar:
        members = tar.getmembers()
    names = [member.name for member in members]
    assert len(set(names)) == len(names)
    assert {member.type for member in members} <= {tarfile.REGTYPE, tarfile.DIRTYPE}
    assert max(member.size for member in members) <= 4 << 20
    assert not any(".." in member.name.split("/") for member in members)


def test_links_of_the_host_that_lead_outside_stay_inside(tmp_path):
    host = Host(tmp_path / "host")
    (tmp_path / "outside.yaml").write_text("secret: outside\n")
    host.link("etc/cdi/up.yaml", "../../../outside.yaml")
    host.link("etc/cdi/absolute.yaml", str(tmp_path / "outside.yaml"))
    host.link("etc/cdi/loop.yaml", "loop.yaml")
    bundle(host, tmp_path / "case.tgz")
    top = unpacked(tmp_path / "case.tgz", tmp_path / "out")
    assert not (top / "etc/cdi/up.yaml").exists()
    assert [path for path in top.rglob("*") if path.is_file() and "outside" in path.read_text(errors="replace")] == []


def test_it_is_for_its_owner_and_replaces_an_older_one_as_a_whole(tmp_path):
    host = Host(tmp_path / "host")
    target = tmp_path / "case.tgz"
    precious = tmp_path / "precious"
    precious.write_text("keep me")
    target.symlink_to(precious)
    bundle(host, target)
    assert not target.is_symlink()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert precious.read_text() == "keep me"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["case.tgz", "host", "precious"]


@pytest.mark.slow  # two bundles; what is told before one is made is below
def test_a_bundle_that_cannot_be_written_leaves_nothing(tmp_path):
    host = Host(tmp_path / "host")
    (tmp_path / "taken").mkdir()
    with pytest.raises(GpuwatchError, match="cannot write"):
        bundle(host, tmp_path / "taken")
    with pytest.raises(GpuwatchError, match="cannot write"):
        bundle(host, tmp_path / "nowhere/case.tgz")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["host", "taken"]


def test_a_place_where_none_can_be_made_is_reported_at_once(tmp_path):
    with pytest.raises(UsageError, match="is a folder"):
        check_target(tmp_path)
    with pytest.raises(UsageError, match="there is no folder"):
        check_target(tmp_path / "nowhere/case.tgz")
    with pytest.raises(UsageError, match="no plain file"):
        check_target(Path("/dev/null"))
    with pytest.raises(UsageError, match="standard output has the diagnosis"):
        check_target(Path("-"))
    if os.geteuid() != 0:
        tmp_path.chmod(0o500)
        with pytest.raises(PermissionMissing):
            check_target(tmp_path / "case.tgz")


@pytest.mark.slow  # quick: the bound of the whole, below
def test_of_a_long_log_it_has_the_end(tmp_path):
    host = Host(tmp_path / "host")
    host.write("var/log/fabricmanager.log", _log(2_900))
    written = bundle(host, tmp_path / "whole.tgz")
    log = (unpacked(tmp_path / "whole.tgz", tmp_path / "out") / "var/log/fabricmanager.log").read_text()
    assert len(log) == 2 << 20
    assert log.endswith("the end\n")
    assert "only the last" in written.missing["var/log/fabricmanager.log"]


def test_it_is_bounded_and_says_what_was_left_out(tmp_path):
    host = Host(tmp_path / "host")
    host.write("var/log/fabricmanager.log", _log(700))
    small = bundle(host, tmp_path / "small.tgz", limit=512 << 10)
    top = unpacked(tmp_path / "small.tgz", tmp_path / "out")
    assert sum(path.stat().st_size for path in top.rglob("*") if path.is_file()) < 512 << 10
    assert "longer than" in small.missing["var/log/fabricmanager.log"]
    assert "var/log/fabricmanager.log: left out" in (top / "README.txt").read_text()
    assert (top / "proc/modules").exists()


def test_a_tree_of_sockets_costs_a_bounded_number_of_looks(tmp_path, monkeypatch):
    """512 folders of 512 sockets took minutes: none of them counts for the bytes of a bundle."""
    monkeypatch.setattr(host_tree, "MOST_STEPS", 300)
    host = Host(tmp_path / "host")
    for folder in range(10):
        place = tmp_path / f"host/etc/containerd/{folder}"
        place.mkdir(parents=True)
        for number in range(50):
            os.mknod(place / f"{number}.toml", stat.S_IFSOCK | 0o600)
    missing = bundle(host, tmp_path / "case.tgz").missing
    assert missing["files: others"] == "left out: too many names match what a bundle takes"
    assert 100 < sum(path.startswith("etc/containerd") for path in missing) < 300


def _log(lines):
    return "x" * 79 + "\n" + f"[INFO] {'a line of the log ' * 40}\n" * lines + "the end\n"


def test_no_copy_is_of_a_file_that_a_wedged_driver_could_block():
    assert [row.pattern for row in ALLOWED if row.pattern.startswith(("proc/driver", "sys/", "dev/"))] == []


def test_half_a_node_makes_a_bundle_that_names_what_is_missing(tmp_path):
    host = Host(tmp_path / "host")
    host.view = host.earlier = None
    host.exporters = host.cluster = None
    host.unread = {"view": "the driver does not answer", "cluster": "forbidden", "cdi": "permission denied"}
    host.write("etc/containerd/config.toml", "version = [")
    host.write("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", "{broken")
    host.write("etc/cdi/nvidia-broken.yaml", "devices: [")
    made = contents(host, document="no JSON")
    written = write_bundle(tmp_path / "case.tgz", made)
    top = unpacked(tmp_path / "case.tgz", tmp_path / "out")
    readme = (top / "README.txt").read_text()
    assert written.missing["gpuwatch/view.json"] == "the driver does not answer"
    assert "gpuwatch/view.json: the driver does not answer" in readme
    assert "diagnosis.json: JSONDecodeError: it could not be made" in readme
    assert recorded(top / "gpuwatch").unread == {"cdi": "permission denied"}
    with pytest.raises(GpuwatchError, match="permission denied"):
        read_section("cdi", Places.tree(top))
    assert sections(Places.tree(top))["runtime"] == read_section("runtime", Places.tree(host.root))


def test_a_container_provides_no_files_of_its_own_as_the_hosts(tmp_path):
    host = Host(tmp_path / "host")
    places = msgspec.structs.replace(Places.tree(host.root), hidden=True)
    assert {member.path.partition("/")[0] for member in copied(places)} == {"proc"}


def test_no_file_of_this_machine_is_taken_for_another(tmp_path):
    host = Host(tmp_path / "host")
    host.unread = dict.fromkeys(HOST_SECTIONS, "the agent is of another machine")
    written = bundle(host, tmp_path / "case.tgz")
    top = unpacked(tmp_path / "case.tgz", tmp_path / "out")
    assert written.missing["files: all"] == "the agent is of another machine"
    assert sorted(path.name for path in top.iterdir()) == ["README.txt", "diagnosis.json", "diagnosis.txt", "gpuwatch"]
    assert "No file of the node could be copied." in (top / "README.txt").read_text()


@pytest.mark.slow  # quick: a bundle of a broken host
def test_device_files_are_judged_by_the_numbers_they_had(tmp_path):
    host = Host(tmp_path / "host")
    made = contents(host)
    nodes = made.facts.nodes
    assert nodes is not None
    real = {name: type(node)(major=195, minor=0, mode=0o666) for name, node in nodes.files.items()}
    facts = type(made.facts)(**{**_members(made.facts), "plain": False, "nodes": type(nodes)(files=real)})
    write_bundle(tmp_path / "case.tgz", made._replace(facts=facts))
    top = unpacked(tmp_path / "case.tgz", tmp_path / "out")
    assert Places.tree(top).plain is False
    assert read_section("nodes", Places.tree(top)) == type(nodes)(files=real)


def _members(record):
    return {name: getattr(record, name) for name in record.__struct_fields__}


def test_a_bundle_is_never_taken_for_this_machine(case):
    _, _, _, top = case
    assert not (top / "proc/sys/kernel/random/boot_id").exists()


def test_a_damaged_record_is_reported(case, tmp_path):
    folder = tmp_path / "gpuwatch"
    folder.mkdir()
    (folder / "host.json").write_text('{"plain": "perhaps"}')
    with pytest.raises(GpuwatchError, match=r"host\.json cannot be read"):
        recorded(folder)


def test_the_versions_and_the_document_are_json(case):
    _, _, _, top = case
    versions = json.loads((top / "gpuwatch/versions.json").read_text())
    assert versions["node"]["driver"] == "580.105.08"
    assert json.loads((top / "diagnosis.json").read_text())["kind"] == "Diagnosis"
