"""What a node is made of and no package brings: programs of Kubernetes and of NVIDIA, built once."""

import sys
from pathlib import Path

from tests.cluster.binaries import kubernetes
from tests.gobuild import GoModule, NoBinaries, say

HERE = Path(__file__).parent

KUBERNETES = kubernetes(
    "kubernetes-node",
    HERE / "kubernetes",
    {name: f"./{name}" for name in ("kube-controller-manager", "kube-scheduler", "kubelet")},
)
NVIDIA = GoModule(
    "nvidia-node",
    HERE / "deviceplugin",
    {
        name: f"github.com/NVIDIA/k8s-device-plugin/cmd/{name}"
        for name in ("gpu-feature-discovery", "nvidia-device-plugin")
    },
    variables={},
    cgo=True,  # it opens libnvidia-ml as the driver's users do
)
TOOLKIT = GoModule(
    "nvidia-toolkit",
    HERE / "toolkit",
    {"nvidia-ctk": "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk"},
    variables={},
    cgo=True,
)


def main() -> None:
    """Get the programs and print where they are."""
    try:
        for module in (KUBERNETES, NVIDIA, TOOLKIT):
            print(*module.get().values(), sep="\n")
    except NoBinaries as none:
        say(str(none))
        sys.exit(1)


if __name__ == "__main__":
    main()
