"""A container of an image, by runc, as the deployment has it: read-only root, no capability, no new privileges."""

import contextlib
import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.e2e.processes import running
from tests.image.base import run

WRITABLE = ("/run/gpuwatch", "/var/lib/gpuwatch")


@contextlib.contextmanager
def rootfs(image: str) -> Iterator[Path]:
    """The image's files, mounted."""
    container = run("buildah", "from", "--pull-never", image)
    try:
        yield Path(run("buildah", "mount", container))
    finally:
        run("buildah", "rm", container)


def configuration(image: str) -> dict[str, Any]:
    """What the image says about how it is run: User, Env, Entrypoint, Cmd, Labels."""
    found: dict[str, Any] = json.loads(run("buildah", "inspect", "--type", "image", image))["OCIv1"]["config"]
    return found


@contextlib.contextmanager
def contained(place: Path, root: Path, image: str, arguments: Sequence[str], uid: int) -> Iterator[subprocess.Popen]:
    """The image's entry point with `arguments`, on the host's network; its output is in `place`/log."""
    place.mkdir(parents=True)
    run("runc", "spec", cwd=place)
    spec, image_says = json.loads((place / "config.json").read_text()), configuration(image)
    spec["root"] = {"path": str(root), "readonly": True}
    spec["process"] |= {
        "args": [*image_says["Entrypoint"], *arguments],
        "env": image_says["Env"],
        "user": {"uid": uid, "gid": uid},
        "terminal": False,
        "noNewPrivileges": True,
        "rlimits": [],
        "capabilities": {kind: [] for kind in spec["process"]["capabilities"]},
    }
    options = ["nosuid", "nodev", "mode=0755", f"uid={uid}", f"gid={uid}"]
    spec["mounts"] += [
        {"destination": path, "type": "tmpfs", "source": "tmpfs", "options": options} for path in WRITABLE
    ]
    spec["linux"]["namespaces"] = [each for each in spec["linux"]["namespaces"] if each["type"] != "network"]
    (place / "config.json").write_text(json.dumps(spec))
    name = f"gpuwatch-{place.parent.name}-{place.name}"
    try:
        with running(["runc", "run", "--bundle", str(place), name], place / "log") as process:
            yield process
    finally:
        subprocess.run(["runc", "delete", "--force", name], capture_output=True, check=False)
