"""The image that the Dockerfile is built on here: this machine's own Debian or Ubuntu, as no registry need be at hand.

What the Dockerfile names by default has Python and glibc, too. Made once, and kept where buildah keeps images.
"""

import contextlib
import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.gobuild import cache

TREE = Path(__file__).parents[2]
IMAGE = "localhost/gpuwatch:test"
PROGRAMS = ("buildah", "debootstrap", "runc")
INCLUDE = "python3,python3-venv,ca-certificates"
WASTE = ("var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/man", "usr/share/locale")
"""What the images of Debian and Python leave out, too."""
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class CannotBuild(Exception):
    """Images cannot be built here: what, why, next step."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """What a program prints. Raises CannotBuild with what it complains of."""
    done = subprocess.run([*map(str, command)], cwd=cwd, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = (done.stderr or done.stdout)[-2000:]
        raise CannotBuild(f"{' '.join(map(str, command[:3]))} ended with {done.returncode}; {complaint}")
    return done.stdout.strip()


def demand(programs: Sequence[str] = PROGRAMS) -> None:
    """Raises CannotBuild where images can be neither built nor run."""
    if os.geteuid() != 0:
        raise CannotBuild("images are built and run as root; run as root: make test-image")
    if missing := [program for program in programs if not shutil.which(program)]:
        raise CannotBuild(f"{', '.join(missing)} not found; run: apt-get install {' '.join(missing)}")


def base_image() -> str:
    """The image's name; made where there is none. Raises CannotBuild."""
    demand()
    cache().mkdir(parents=True, exist_ok=True)
    with alone(cache() / "image-base.lock"):
        return _base_image()


def product_image() -> str:
    """gpuwatch's image, built from this tree as the README says, but for the base. Raises CannotBuild."""
    options = build_options()
    with alone(cache() / "image.lock"):  # one builds, and for the others nothing is left to do
        run("buildah", "bud", "--layers", *options, "--tag", IMAGE, str(TREE))
    return IMAGE


def build_options() -> list[str]:
    """Of `buildah bud`: the base that is here, and its certificates, as an index of packages may need them."""
    certificates = "/etc/ssl/certs:/etc/ssl/certs:ro"
    return ["--isolation", "chroot", "--pull-never", "--build-arg", f"BASE={base_image()}", "--volume", certificates]


@contextlib.contextmanager
def alone(file: Path) -> Iterator[None]:
    """Of all processes that use this file; the kernel frees it when one dies."""
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _base_image() -> str:
    release = _os_release()
    name = f"localhost/gpuwatch-base-slim:{release['VERSION_CODENAME']}"
    if subprocess.run(["buildah", "inspect", "--type", "image", name], capture_output=True, check=False).returncode:
        with tempfile.TemporaryDirectory(prefix="gpuwatch-base-") as place:
            rootfs = Path(place) / "rootfs"
            run("debootstrap", "--variant=minbase", f"--include={INCLUDE}", release["VERSION_CODENAME"], rootfs)
            for waste in WASTE:
                shutil.rmtree(rootfs / waste)
            container = run("buildah", "from", "scratch")
            run("buildah", "copy", "--quiet", container, rootfs, "/")
            run("buildah", "config", "--env", f"PATH={PATH}", container)
            run("buildah", "commit", "--quiet", "--rm", container, name)
    return name


def _os_release() -> dict[str, str]:
    lines = Path("/etc/os-release").read_text().splitlines()
    return {key: value.strip('"') for key, _, value in (line.partition("=") for line in lines)}
