"""What a container may do beyond computing, in words: each is a reason for somebody to say no to an installation."""

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.deploy.rendering import Manifest

POD = "pod"
"""Stands for what all containers share."""


def privileges(found: Manifest) -> dict[str, frozenset[str]]:
    """Those of a pod, `found` being its metadata and spec."""
    spec = found["spec"]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    everyone = [*spec["containers"], *spec.get("initContainers", []), *spec.get("ephemeralContainers", [])]
    told = {container["name"]: frozenset(_of(container, volumes)) for container in everyone}
    return told | {POD: frozenset(_shared(spec))}


def _shared(spec: Manifest) -> Iterator[str]:
    yield from (key for key in ("hostPID", "hostNetwork", "hostIPC", "shareProcessNamespace") if spec.get(key))
    if spec.get("automountServiceAccountToken") is not False:
        yield "API token in every container"
    if spec.get("securityContext"):
        yield f"securityContext {spec['securityContext']}"


def _of(container: Manifest, volumes: Mapping[str, Manifest]) -> Iterator[str]:
    context = container.get("securityContext", {})
    yield from (f"capability {name}" for name in context.get("capabilities", {}).get("add", []))
    yield from (words for words, is_so in _confinement(context) if is_so)
    yield from (f"{device['devicePath']}" for device in container.get("volumeDevices", []))
    yield from (f"hostPort {port['hostPort']}" for port in container.get("ports", []) if "hostPort" in port)
    if any(each["name"] == "NVIDIA_VISIBLE_DEVICES" and each["value"] != "void" for each in container["env"]):
        yield "GPUs"
    for mount in container["volumeMounts"]:
        yield from _mounted(mount, volumes[mount["name"]])


def _confinement(context: Manifest) -> Iterator[tuple[str, bool]]:
    privileged = bool(context.get("privileged"))
    yield "privileged", privileged
    yield "root", context.get("runAsUser") == 0
    yield "user of the image", "runAsUser" not in context
    yield "writable root", context.get("readOnlyRootFilesystem") is not True
    if not privileged:  # which says all of this
        yield "may gain privileges", context.get("allowPrivilegeEscalation") is not False
        yield "usual capabilities", context.get("capabilities", {}).get("drop") != ["ALL"]
        yield "any system call", context.get("seccompProfile") != {"type": "RuntimeDefault"}


def _mounted(mount: Manifest, volume: Manifest) -> Iterator[str]:
    if "hostPath" in volume:
        verb = "reads" if mount.get("readOnly") else "writes"
        yield f"{verb} {Path(volume['hostPath']['path'], mount.get('subPath', ''))}"
    if any("serviceAccountToken" in source for source in volume.get("projected", {}).get("sources", [])):
        yield "API token"
    unusual = set(volume) - {"name", "hostPath", "projected", "emptyDir", "configMap"}
    yield from (f"volume of {kind}" for kind in unusual)
