"""What a configuration may name in place of a file (a FIFO, a device, a folder, too much) is refused, and at once."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.config.named_file import MOST_BYTES, read_named_file, replacing
from gpuwatch.http.web_guard import WebGuard
from gpuwatch.kube.credentials import KUBECONFIG_BYTES
from gpuwatch.kube.transport import Transport
from gpuwatch.model.errors import GpuwatchError, UsageError
from gpuwatch.remediation.service.reboot_sentinel import set_sentinel
from gpuwatch.rightsizing.prometheus.config import load_http_config


def named(kind: str, folder: Path, most: int = MOST_BYTES) -> Path:
    path = folder / kind
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(most + 1)
    return path


KINDS = {
    "fifo": "not a regular file",
    "folder": "not a regular file",
    "device": "not a regular file",
    "large": "larger than",
    "missing": "No such file",
}


@pytest.mark.parametrize("kind", KINDS)
def test_it_is_no_regular_file_within_the_bound(kind: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=KINDS[kind]) as refused:
        read_named_file(named(kind, tmp_path), "token", "--option")
    assert (str(tmp_path) in str(refused.value), refused.value.next_step) == (True, "check --option")


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_what_is_no_regular_file_is_not_replaced(kind: str, tmp_path: Path) -> None:
    """As root, a file would take the place of /dev/null for all; /dev/stdout may lead to a file."""
    path = named(kind, tmp_path)
    before = path.lstat()
    for each in (path, Path("/dev/stdout")):
        with pytest.raises(OSError, match="not a regular file") as refused, replacing(each) as file:
            file.write(b"new")
        assert refused.value.filename == str(each)
    assert (path.lstat().st_mode, path.lstat().st_ino) == (before.st_mode, before.st_ino)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path, precious = tmp_path / "a", tmp_path / "precious"
    precious.write_text("old")
    path.symlink_to(precious)
    with pytest.raises(OSError, match="No space left") as failed, replacing(path):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert (failed.value.filename, path.read_text(), len(list(tmp_path.iterdir()))) == (str(path), "old", 2)
    with replacing(path, 0o600) as file:
        file.write(b"new")
    assert (path.is_symlink(), path.read_text(), path.stat().st_mode & 0o777) == (False, "new", 0o600)
    assert (precious.read_text(), len(list(tmp_path.iterdir()))) == ("old", 2)


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "apply.sh"
    path.touch()
    path.chmod(mode)
    with replacing(path) as file:
        file.write(b"new")
    assert (path.read_text(), path.stat().st_mode & 0o7777) == ("new", mode)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_the_file_of_another_user_opens_the_new_one_to_nobody(tmp_path: Path) -> None:
    """In /tmp anybody may have made it, and a script may be run by root."""
    path, link = tmp_path / "apply.sh", tmp_path / "link"
    for made, before, after in ((path, 0o4666, 0o644), (path, 0o600, 0o600), (link, 0o666, 0o644)):
        path.touch()
        os.chown(path, 1234, 1234)
        path.chmod(before)
        if made is link:
            link.symlink_to(path)
        with replacing(made) as file:
            file.write(b"new")
        assert (made.stat().st_mode & 0o7777, made.stat().st_uid) == (after, 0)
        path.unlink()


def _http(text: str) -> Callable[[Path], object]:
    def read(named: Path) -> object:
        file = named.parent / "http.yaml"
        file.write_text(text.replace("NAMED", str(named)))
        config = load_http_config(file)
        return config.headers(), config.tls_config.context()

    return read


def _web(text: str) -> Callable[[Path], object]:
    def read(named: Path) -> object:
        file = named.parent / "web.yaml"
        (named.parent / "other.pem").write_text("")
        file.write_text(f"tls_server_config: {{{text}}}".replace("NAMED", str(named)))
        return WebGuard(file)

    return read


def _kubeconfig(named: Path) -> object:
    return Transport(str(named)).server


def _token_file(named: Path) -> object:
    file = named.parent / "kubeconfig.yaml"
    parts = {
        "context": {"cluster": "a", "user": "a"},
        "cluster": {"server": "http://a"},
        "user": {"tokenFile": named.name},
    }
    lists = {f"{kind}s": [{"name": "a", kind: part}] for kind, part in parts.items()}
    file.write_text(json.dumps({"current-context": "a", **lists}))
    return Transport(str(file)).server


READERS = {
    "username_file": _http("basic_auth: {username_file: NAMED, password: x}"),
    "password_file": _http("basic_auth: {username: x, password_file: NAMED}"),
    "credentials_file": _http("authorization: {credentials_file: NAMED}"),
    "bearer_token_file": _http("bearer_token_file: NAMED"),
    "http_headers": _http("http_headers: {X-Key: {files: [NAMED]}}"),
    "ca_file": _http("tls_config: {ca_file: NAMED}"),
    "cert_file of a client": _http("tls_config: {cert_file: NAMED}"),
    "cert_file": _web("cert_file: NAMED, key_file: other.pem"),
    "key_file": _web("cert_file: other.pem, key_file: NAMED"),
    "client_ca_file": _web(
        "cert_file: other.pem, key_file: other.pem, client_ca_file: NAMED, client_auth_type: RequireAndVerifyClientCert"
    ),
    "kubeconfig": _kubeconfig,
    "tokenFile of a kubeconfig": _token_file,
}
BOUNDS = {"kubeconfig": KUBECONFIG_BYTES}


@pytest.mark.parametrize("kind", ["fifo", "folder", "device", "large"])
@pytest.mark.parametrize("reader", READERS)
def test_each_reader_refuses_it(reader: str, kind: str, tmp_path: Path) -> None:
    path = named(kind, tmp_path, BOUNDS.get(reader, MOST_BYTES))
    with pytest.raises(UsageError, match=KINDS[kind]) as refused:
        READERS[reader](path)
    assert str(path) in str(refused.value)


def test_a_fifo_in_place_of_the_sentinel_keeps_no_remediator_waiting(tmp_path: Path) -> None:
    path = named("fifo", tmp_path)
    with pytest.raises(GpuwatchError, match="no plain file"):
        set_sentinel(path, wanted=False)
    assert path.is_fifo()
