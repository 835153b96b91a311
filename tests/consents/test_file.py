"""The file of consents: what is written is read, whole or not at all, and nobody else's file is believed."""

import os
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.model.consent import AUTOTUNE, CLASS, Consents, PodConsent
from gpuwatch.model.errors import GpuwatchError
from gpuwatch.storage.versioned_file import MOST_BYTES

POD = PodConsent(
    namespace="team", name="train-0", uid="u-1", annotations={AUTOTUNE: "enforce"}, job="team/train", priority=-10
)
CONSENTS = Consents(
    at=1.79e9, node={AUTOTUNE: "off"}, quarantined=True, namespaces={"team": {CLASS: "batch"}}, pods=(POD,)
)


@pytest.fixture
def file(tmp_path: Path) -> ConsentsFile:
    return ConsentsFile(tmp_path)


def lay(file: ConsentsFile, body: bytes) -> None:
    """A file there, as gpuwatch would make it whatever the umask."""
    file.path.parent.mkdir(exist_ok=True)
    file.path.write_bytes(body)
    file.path.chmod(0o644)


def test_no_file_is_none(file: ConsentsFile) -> None:
    assert file.read() is None


def test_what_is_written_is_read_by_others(file: ConsentsFile, tmp_path: Path) -> None:
    file.write(replace(CONSENTS, at=1.0))
    file.write(CONSENTS)
    assert ConsentsFile(tmp_path).read() == CONSENTS
    assert [path.name for path in file.path.parent.iterdir()] == ["consents.json"]


def test_it_lies_in_a_folder_of_its_own(file: ConsentsFile, tmp_path: Path) -> None:
    """In a pod that folder is a volume: the process with the token sees nothing else of the state directory."""
    file.write(CONSENTS)
    assert [path.name for path in tmp_path.iterdir()] == ["consents"]


def test_a_reader_never_sees_half_of_it(file: ConsentsFile) -> None:
    """Two documents of different length, one after the other; a torn one would not be understood."""
    many = replace(CONSENTS, pods=tuple(replace(POD, uid=f"u-{number}") for number in range(2000)))
    file.write(CONSENTS)
    done = threading.Event()

    def write() -> None:
        for turn in range(60):
            file.write(many if turn % 2 else CONSENTS)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = []
    while not done.is_set():
        seen.append(file.read())
    writer.join()
    assert seen
    assert all(found in (CONSENTS, many) for found in seen)


@pytest.mark.parametrize("mode", [0o666, 0o664, 0o602])
def test_a_file_that_others_may_write_is_not_trusted(file: ConsentsFile, mode: int) -> None:
    file.write(CONSENTS)
    file.path.chmod(mode)
    with pytest.raises(GpuwatchError, match="others may write it"):
        file.read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_not_trusted(file: ConsentsFile) -> None:
    file.write(CONSENTS)
    os.chown(file.path, 65534, 65534)
    with pytest.raises(GpuwatchError, match="user 65534"):
        file.read()


def test_a_link_is_not_followed_by_the_reader(file: ConsentsFile, tmp_path: Path) -> None:
    file.write(CONSENTS)
    file.path.rename(tmp_path / "elsewhere")
    file.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(GpuwatchError, match="it is a link"):
        file.read()


def test_a_link_is_not_followed_by_the_writer(file: ConsentsFile, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("untouched")
    file.path.parent.mkdir()
    file.path.symlink_to(tmp_path / "secret")
    file.path.with_suffix(".json.partial").symlink_to(tmp_path / "secret")
    file.write(CONSENTS)
    assert (tmp_path / "secret").read_text() == "untouched"
    assert file.read() == CONSENTS


def test_a_pipe_is_not_waited_for(file: ConsentsFile) -> None:
    file.path.parent.mkdir()
    os.mkfifo(file.path, 0o644)
    with pytest.raises(GpuwatchError, match="no plain file"):
        file.read()


def test_a_folder_in_its_place_is_reported(file: ConsentsFile) -> None:
    file.path.mkdir(parents=True)
    with pytest.raises(GpuwatchError, match="cannot read"):
        file.read()


def test_a_huge_file_is_not_read(file: ConsentsFile) -> None:
    lay(file, b'{"schema":1,"content":{"at":1}}'.ljust(MOST_BYTES + 1))
    with pytest.raises(GpuwatchError, match="it has more than"):
        file.read()


def test_another_version_is_reported(file: ConsentsFile) -> None:
    lay(file, b'{"schema":2,"content":{"of":"the future"}}')
    with pytest.raises(GpuwatchError, match="schema 2, this gpuwatch knows 1"):
        file.read()


def test_where_there_is_no_state_directory_it_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(GpuwatchError, match="look at --state-dir"):
        ConsentsFile(tmp_path / "missing").write(CONSENTS)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
@example(b"")
@example(b'{"schema":1}')
@example(b'{"schema":1,"content":{"at":"x"}}')
@example(b'{"schema":1,"content":{"at":1,"pods":[{"name":"a"}]}}')
@example(b'{"schema":1,"content":{"at":1},"more":0}')
def test_what_gpuwatch_does_not_write_is_not_trusted(file: ConsentsFile, body: bytes) -> None:
    lay(file, body)
    with pytest.raises(GpuwatchError, match="cannot use"):
        file.read()


def test_the_schema_is_the_one_documented(file: ConsentsFile) -> None:
    """A change of what a member means needs another number: the two processes may be of different versions."""
    file.write(CONSENTS)
    found = msgspec.json.decode(file.path.read_bytes())
    assert found["schema"] == 1
    assert found["content"]["pods"][0]["annotations"] == {AUTOTUNE: "enforce"}
