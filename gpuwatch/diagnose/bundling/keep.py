"""What is kept of a host's file in a bundle, line by line: known parameters, modules, packages; all else is left out.

Each function takes the file's text and gives what may leave the machine. Documents are in `keep_documents`.
"""

import re
from collections.abc import Callable, Iterator

from gpuwatch.diagnose.bundling.redaction import MARK

Keep = Callable[[str], str]

_PARAMETERS = re.compile(
    r"(?:BOOT_IMAGE|root|ro|rw|quiet|splash|nosplash|debug|iommu(?:\..*)?|intel_iommu|amd_iommu|pci(?:e_.*)?|pcie.*|nvidia.*|nouveau.*"
    r"|nova.*|vfio.*|(?:rd\.)?(?:driver|modprobe|module)[._]blacklist|module_blacklist|rdblacklist|module\.sig_enforce|lockdown"
    r"|(?:default_)?hugepage.*|transparent_hugepage|numa.*|isolcpus|nohz.*|rcu_nocbs|mitigations|mem|nomodeset|systemd\."
    r"(?:unified|legacy).*|cgroup.*|swiotlb|efi|nosmt|processor\..*|intel_idle\..*|cpuidle\..*|crashkernel|selinux|apparmor)",
)
_MODULES = re.compile(r"(?:nvidia|nouveau|nova|vfio|gdrdrv|mlx5|ib_)[\w-]*", re.A)
_ASSIGNED = re.compile(r"\s*(?:export\s+)?([\w.-]+)=(?:true|false|\d+|/[\w./-]*|[\w.-]{1,15})?\s*", re.A)
_PACKAGES = re.compile(
    r"(?:lib)?nvidia|cuda|datacenter-gpu|containerd|cri-o|docker|moby|podman|linux-(?:image|headers)|kubelet|mlnx"
)
_PACKAGE_KEYS = ("Package", "Status", "Version", "Architecture", "Source")


def whole(text: str) -> str:
    """Everything but what looks like a secret."""
    return text


def nothing(text: str) -> str:
    """That it is there is all that matters."""
    return ""


def left_out_of_cmdline(text: str) -> tuple[str, ...]:
    """Values that `cmdline` takes out."""
    return tuple(word.partition("=")[2].strip('"') for word in text.split() if "=" in word and not _is_known(word))


def cmdline(text: str) -> str:
    """/proc/cmdline: parameters that matter to GPUs as they are, of others the name."""
    return (
        " ".join(
            word if "=" not in word or _is_known(word) else f"{word.partition('=')[0]}={MARK}" for word in text.split()
        )
        + "\n"
    )


def _is_known(word: str) -> bool:
    return _PARAMETERS.fullmatch(word.partition("=")[0]) is not None


def modprobe(text: str) -> str:
    """modprobe.d: blacklists whole, options and commands only of modules around GPUs."""
    return "".join(f"{line}\n" for line in text.splitlines() if _is_about_gpus(line.split()))


def _is_about_gpus(words: list[str]) -> bool:
    if len(words) < 2:
        return False
    if words[0] == "blacklist":
        return len(words) == 2
    known = words[0] in ("options", "install", "remove", "softdep", "alias")
    return known and any(_MODULES.fullmatch(word) for word in (words[1], words[-1] if words[0] == "alias" else ""))


def listening(text: str) -> str:
    """/proc/net/tcp: sockets that listen; whom this machine talks to stays out."""
    head, *rows = text.splitlines() or [""]
    return "\n".join((head, *(row for row in rows if row.split()[3:4] == ["0A"]))) + "\n"


def assignments(text: str) -> str:
    """KEY=VALUE lines, values only where they are switches, numbers, short words or paths."""
    return "".join(_assignment(line) for line in text.splitlines())


def _assignment(line: str) -> str:
    if "=" not in line or _ASSIGNED.fullmatch(line):
        return f"{line}\n"
    return f"{line.partition('=')[0]}={MARK}\n"


def nvidia_lines(text: str) -> str:
    """modules.dep: which kernel modules of NVIDIA's there are."""
    return "".join(f"{line}\n" for line in text.splitlines() if "nvidia" in line.partition(":")[0])


def packages(text: str) -> str:
    """dpkg's status: name and version of packages around GPUs."""
    return "\n".join(_paragraphs(text))


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        keys = dict(line.partition(": ")[::2] for line in paragraph.splitlines() if line[:1] not in ("", " "))
        if _PACKAGES.match(keys.get("Package", "")):
            yield "".join(f"{key}: {keys[key]}\n" for key in _PACKAGE_KEYS if key in keys)


def runtime_flag(text: str) -> str:
    """kubeadm-flags.env: which container runtime the kubelet uses."""
    return "".join(f"{match}\n" for match in re.findall(r"--container-runtime-endpoint[= ][\w:/.-]+", text))
