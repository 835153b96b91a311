"""A path beneath a root stays there, whatever the tree holds: by the kernel's own resolution and by the walk alike."""

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.host import tree
from gpuwatch.host.plain_file import content, opened, text
from gpuwatch.host.tree import TreePath, beneath, mounted, openat2, place, walk

SECRET = "of this machine"
WAYS = (openat2, walk)
Resolve = Callable[[int, bytes, int], int]

NAMES = ("a", "b", "c")
TARGETS = st.lists(st.sampled_from(("..", ".", *NAMES)), min_size=1, max_size=6).map("/".join)
LINKS = st.builds(lambda start, target: start + target, st.sampled_from(("", "/", "../../../")), TARGETS)
TREES = st.dictionaries(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join), st.one_of(st.none(), LINKS), max_size=8
)
PATHS = st.builds(lambda end, target: target + end, st.sampled_from(("", "/", "/.")), LINKS)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret").write_text(SECRET)
    host = tmp_path / "host"
    (host / "etc/deep").mkdir(parents=True)
    (host / "etc/name").write_text("of the tree")
    return host


@pytest.fixture(params=WAYS, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Resolve:
    if request.param is openat2 and not has_openat2():
        pytest.skip("the kernel has no openat2")
    monkeypatch.setattr(tree, "open_in_root", request.param)
    chosen: Resolve = request.param
    return chosen


def has_openat2() -> bool:
    with descriptor(Path("/")) as found:
        try:
            os.close(openat2(found, b".", os.O_PATH))
        except OSError:
            return False
    return True


@contextlib.contextmanager
def descriptor(folder: Path) -> Iterator[int]:
    found = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield found
    finally:
        os.close(found)


def outcome(way: Resolve, root: Path, path: str, flags: int) -> tuple[int, int] | int:
    """The file that is found, or the error's number."""
    with descriptor(root) as at:
        try:
            found = way(at, os.fsencode(path), flags | os.O_CLOEXEC)
        except OSError as error:
            return error.errno or 0
        status = os.fstat(found)
        os.close(found)
        return status.st_dev, status.st_ino


@pytest.mark.parametrize(
    "target", ["../../secret", "../../../../../../../{secret}", "{secret}", "/../{secret}", "deep/../../../secret"]
)
def test_no_link_leads_out(root: Path, way: Resolve, target: str) -> None:
    secret = root.parent / "secret"
    (root / "etc/out").symlink_to(target.format(secret=secret))
    (root / "etc/parent").symlink_to(str(root.parent))
    assert text(beneath(root, "etc/out")) is None
    assert text(beneath(root, "etc/parent/secret")) is None
    assert not beneath(root, "etc/out").exists()
    with pytest.raises(OSError, match="No such file"):
        content(beneath(root, "../secret"))
    with pytest.raises(OSError, match="No such file"):
        content(beneath(root) / str(secret))


def test_links_inside_mean_the_tree(root: Path, way: Resolve) -> None:
    (root / "up").symlink_to("/../../etc")
    (root / "etc/again").symlink_to("/etc/name")
    for path in ("up/name", "etc/again", "/etc/deep/../again", "up/../etc/./name"):
        assert text(beneath(root, path)) == "of the tree"
    assert beneath(root, "up/again").resolve() == beneath(root, "etc/name")
    assert str(beneath(root, "etc/again").readlink()) == "/etc/name"
    assert sorted(path.name for path in beneath(root, "up").iterdir()) == ["again", "deep", "name"]
    assert sorted(map(str, beneath(root).glob("*/na*"))) == [str(root / "etc/name"), str(root / "up/name")]


def test_links_of_proc_that_the_kernel_makes_are_not_followed(way: Resolve, tmp_path: Path) -> None:
    (tmp_path / "open").write_text(SECRET)
    with (tmp_path / "open").open() as file:
        found = beneath(Path("/proc/self"), f"fd/{file.fileno()}")
        assert text(found) is None
    assert not beneath(Path("/proc/self"), "root/etc").exists()


def test_pipes_devices_folders_and_sockets_are_not_opened(root: Path, way: Resolve) -> None:
    os.mkfifo(root / "pipe")
    kinds = ["pipe", "etc"]
    if os.geteuid() == 0:
        with contextlib.suppress(PermissionError):
            os.mknod(root / "zero", stat.S_IFCHR | 0o600, os.makedev(1, 5))
            kinds.append("zero")
    for name in kinds:
        with pytest.raises(OSError, match="no plain file"):
            opened(beneath(root, name))


def test_a_huge_file_is_read_up_to_its_bound(root: Path, way: Resolve) -> None:
    with (root / "huge").open("wb") as file:
        file.truncate(1 << 40)
    assert len(content(beneath(root, "huge"), 1 << 20)) == 1 << 20


def test_a_folder_of_too_many_names_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "MOST_NAMES", 4)
    for number in range(5):
        (root / "etc/deep" / str(number)).touch()
    with pytest.raises(OSError, match="more than 4 names"):
        list(beneath(root, "etc/deep").iterdir())


def test_names_that_are_no_text_are_left_out(root: Path) -> None:
    (root / "etc" / os.fsdecode(b"\xff")).touch()
    assert sorted(path.name for path in beneath(root, "etc").iterdir()) == ["deep", "name"]


@pytest.mark.parametrize("path", ["etc/" + "a" * 300, "a/" * 3000, "etc/\0name", "etc/\ud800"])
def test_odd_paths_lead_nowhere(root: Path, way: Resolve, path: str) -> None:
    assert text(beneath(root, path)) is None
    assert not beneath(root, path).exists()


def test_a_circle_of_links_ends(root: Path, way: Resolve) -> None:
    (root / "x").symlink_to("y")
    (root / "y").symlink_to("x/z")
    assert not beneath(root, "x").exists()
    assert beneath(root, "x").resolve() == beneath(root, "x")
    assert place(beneath(root), "/x/y") is None


def test_it_is_read_through_its_methods_only(root: Path) -> None:
    """`open` and `os` would resolve it on this machine."""
    found = beneath(root, "etc/name")
    for read in (open, os.stat, os.listdir, os.readlink, os.path.exists, os.walk, Path.unlink):
        with pytest.raises(TypeError, match="root of its own"):
            list(read(found)) if read is os.walk else read(found)
    for path in (found.parent / "name", found.with_name("name"), found.resolve(), next(found.parent.glob("name"))):
        assert isinstance(path, TreePath)
        assert path.root_ == str(root)
    with pytest.raises(OSError, match="only read"):
        found.write_text("x")


def test_the_root_of_this_machine_has_plain_paths() -> None:
    assert type(beneath(Path("/"), "/etc/../proc")) is type(Path("/"))


def test_the_kernel_is_known_by_its_mount(root: Path) -> None:
    (root / "proc").symlink_to("/proc")
    assert mounted(Path("/proc")) == tree.PROC
    assert mounted(beneath(Path("/proc/self/root"), "proc")) == tree.PROC
    assert mounted(beneath(root, "proc")) is None
    assert mounted(root) not in (tree.PROC, tree.SYSFS)


@pytest.mark.skipif(not has_openat2(), reason="the kernel has no openat2")
@given(links=TREES, paths=st.lists(PATHS, min_size=1, max_size=4))
def test_both_ways_find_the_same_file_and_none_outside(links: dict[str, str | None], paths: list[str]) -> None:
    above = Path(tempfile.mkdtemp(prefix="gpuwatch-test-tree-"))
    try:
        for name in NAMES:
            (above / name).mkdir()  # where a link that leaves the root would arrive
            (above / name / "a").write_text(SECRET)
        root = above / "host"
        root.mkdir()
        for path, target in links.items():
            with contextlib.suppress(OSError, RuntimeError):  # RuntimeError: of a circle, before Python 3.13
                if target is None:
                    os.makedirs(root / path, exist_ok=True)
                elif (root / path).parent.resolve().is_relative_to(root):
                    os.makedirs((root / path).parent, exist_ok=True)
                    os.symlink(target, root / path)
        inside = {(status.st_dev, status.st_ino) for status in map(os.lstat, (root, *root.rglob("*")))}
        for path in paths:
            for flags in (os.O_PATH, os.O_PATH | os.O_NOFOLLOW, os.O_RDONLY | os.O_NONBLOCK):
                found = outcome(walk, root, path, flags)
                assert found == outcome(openat2, root, path, flags), (path, flags)
                assert isinstance(found, int) or found in inside
    finally:
        shutil.rmtree(above)
