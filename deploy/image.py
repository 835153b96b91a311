"""Makes the container image as files that need no registry: `python -m deploy.image [FOLDER]`, and for a release.

Buildah builds it from the Dockerfile, with the time of the last commit for all files: two builds have the same digest.
Variables: BASE, the base image (by digest for a release); BUILD_OPTIONS, further options of `buildah bud`, as a site
needs them that has a package index of its own: `--volume /etc/ssl/certs:/etc/ssl/certs:ro`.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from deploy.packages.build import MACHINES, CannotPack
from gpuwatch import DISTRIBUTION, IMAGE, __version__

TREE = Path(__file__).resolve().parents[1]
EMULATORS = Path("/proc/sys/fs/binfmt_misc")
"""Where the kernel lists how programs of other machines are run."""


def options() -> list[str]:
    """Those of `buildah bud` that BASE and BUILD_OPTIONS stand for."""
    base = os.environ.get("BASE")
    return [*(("--build-arg", f"BASE={base}") if base else ()), *shlex.split(os.environ.get("BUILD_OPTIONS", ""))]


def architectures() -> list[str]:
    """Those whose programs run here: this machine's, and those with an emulator."""
    here = platform.machine()
    return [name for name, machine in MACHINES.items() if machine == here or (EMULATORS / f"qemu-{machine}").exists()]


def make(folder: Path, at: int, names: Iterable[str], more: Sequence[str] = ()) -> Iterator[Path]:
    """An OCI archive of each architecture in `folder`; `at`: seconds since 1970, `more`: options. Raises CannotPack."""
    if not shutil.which("buildah"):
        raise CannotPack("buildah builds the image and is not here; run: apt-get install buildah")
    for architecture in names:
        path, name = folder / f"{DISTRIBUTION}_{__version__}_{architecture}.oci.tar", f"{IMAGE}:{__version__}"
        path.unlink(missing_ok=True)  # buildah would add to it
        _buildah("bud", "--timestamp", str(at), "--platform", f"linux/{architecture}", *more, "--tag", name, str(TREE))
        _buildah("push", name, f"oci-archive:{path}:{name}")
        yield path


def _buildah(*arguments: str) -> None:
    done = subprocess.run(["buildah", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotPack(f"buildah {arguments[0]}: {(done.stderr or done.stdout).strip()[-2000:]}")


if __name__ == "__main__":
    from deploy.release import epoch

    into = Path(sys.argv[1] if len(sys.argv) > 1 else "dist")
    into.mkdir(parents=True, exist_ok=True)
    try:
        for archive in make(into, epoch(), architectures(), options()):
            sys.stdout.write(f"{archive}\n")
    except CannotPack as reason:
        sys.exit(f"no image: {reason}")
