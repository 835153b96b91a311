"""What NVIDIA's container runtime does to a container that asks for GPUs, for the fake driver: `nvidia-runc ARGUMENTS`.

Containers with NVIDIA_VISIBLE_DEVICES get the driver's library and what it reads. The rest is runc's.
"""

import json
import os
import sys
from pathlib import Path

LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
CONTROL = "/dev/shm/gpuwatch-fake-nvml"


def main(library: str, control: str, arguments: list[str]) -> None:
    """Change config.json of a container that is created, then become runc."""
    if "create" in arguments and "--bundle" in arguments:
        file = Path(arguments[arguments.index("--bundle") + 1]) / "config.json"
        config = json.loads(file.read_text())
        asked = dict(each.partition("=")[::2] for each in config["process"]["env"]).get("NVIDIA_VISIBLE_DEVICES")
        if asked not in (None, "", "void", "none"):
            config["process"]["env"].append(f"GPUWATCH_FAKE_NVML={CONTROL}")
            for source, target, options in ((library, LIBRARY, ["ro"]), (control, CONTROL, ["rw"])):
                mount = {"destination": target, "type": "bind", "source": source, "options": ["bind", *options]}
                config["mounts"].append(mount)
            file.write_text(json.dumps(config))
    os.execvp("runc", ["runc", *arguments])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
