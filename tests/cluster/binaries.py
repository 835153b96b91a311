"""kube-apiserver and etcd: found where they are, or built once from their Go modules. see main()."""

import os
import sys
from pathlib import Path
from typing import NamedTuple

from tests.gobuild import GoModule, NoBinaries, say

NAMES = ("kube-apiserver", "etcd")
VERSION = "k8s.io/component-base/version"


def kubernetes(name: str, source: Path, packages: dict[str, str], hint: str = "") -> GoModule:
    """Programs of Kubernetes, which learn their version from the linker."""
    version = GoModule(name, source, packages).pinned("k8s.io/kubernetes")
    major, minor, _ = version.split(".", 2)
    told = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    return GoModule(
        name=f"{name}-{version}",
        source=source,
        packages=packages,
        variables={f"{VERSION}.{key}": value for key, value in told.items()},
        hint=hint,
    )


MODULE = kubernetes(
    "kubernetes",
    Path(__file__).parent / "apiserver",
    {name: f"./{name}" for name in NAMES},
    ", or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd",
)


class Binaries(NamedTuple):
    """The two programs."""

    apiserver: Path
    etcd: Path


def find() -> Binaries | None:
    """The binaries that are there already. Raises NoBinaries when KUBEBUILDER_ASSETS misses one."""
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    found = MODULE.within(Path(assets) if assets else MODULE.home())
    if assets and not found:
        raise NoBinaries(f"KUBEBUILDER_ASSETS={assets} lacks {' or '.join(NAMES)}; correct it or unset it")
    return Binaries(*found.values()) if found else None


def get() -> Binaries:
    """The binaries; built where there are none. Raises NoBinaries."""
    return find() or Binaries(*MODULE.get().values())


def main() -> None:
    """Get the binaries and print where they are."""
    try:
        print(*get(), sep="\n")
    except NoBinaries as none:
        say(str(none))
        sys.exit(1)


if __name__ == "__main__":
    main()
