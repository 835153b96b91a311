"""The files of a bundle that are made of facts, one part each, and the facts that may leave the machine.

Allowed are labels of known domains and names of programs without their arguments; secrets are redacted everywhere.
"""

import json
import logging
import platform
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from gpuwatch import __version__
from gpuwatch.config import Config
from gpuwatch.diagnose.baseline.inventory import inventory
from gpuwatch.diagnose.bundling import filters
from gpuwatch.diagnose.bundling.host_tree import BundleMember
from gpuwatch.diagnose.bundling.redaction import MARK, Redactor
from gpuwatch.diagnose.facts import HOST_SECTIONS, HostFacts, NodeFacts
from gpuwatch.diagnose.gathering.recorded import NAME, RecordedHost
from gpuwatch.diagnose.model import ClusterFacts, NodePod
from gpuwatch.diagnose.places import RECORDED, Places
from gpuwatch.model.clock import rfc3339
from gpuwatch.model.decoding import prepared
from gpuwatch.model.snapshot import Gpu
from gpuwatch.model.view import Events, View

log = logging.getLogger(__name__)

PART_BYTES = 4 << 20
"""Limit of one part; a longer text is cut at its beginning, a longer document left out."""

MOST_EVENTS = 2_000
"""Of each kind, the newest."""

LABEL_DOMAINS = (
    "nvidia.com", "gpuwatch.io", "feature.node.kubernetes.io", "nfd.node.kubernetes.io", "kubernetes.io",
    "node.kubernetes.io", "topology.kubernetes.io", "beta.kubernetes.io", "node-role.kubernetes.io",
    "karpenter.sh", "cloud.google.com", "eks.amazonaws.com", "k8s.amazonaws.com", "kubernetes.azure.com",
)  # fmt: skip
ANNOTATION_DOMAINS = ("nvidia.com", "gpuwatch.io", "nfd.node.kubernetes.io")
ENVIRONMENT = (
    "DP_DISABLE_HEALTHCHECKS", "DP_ENABLE_HEALTHCHECKS", "MIG_STRATEGY", "FAIL_ON_INIT_ERROR", "PASS_DEVICE_SPECS",
    "DEVICE_LIST_STRATEGY", "DEVICE_ID_STRATEGY", "NVIDIA_DRIVER_ROOT", "DRIVER_ROOT_CTR_PATH", "CONFIG_FILE",
    "DEFAULT_CONFIG", "FALLBACK_STRATEGIES", "MPS_ROOT", "CDI_ENABLED", "GDS_ENABLED", "MOFED_ENABLED",
)  # fmt: skip
"""Variables of the device plugin whose values a bundle keeps."""

T = TypeVar("T")


class BundleContents(NamedTuple):
    """The input of a bundle. `document` and `screen`: the diagnosis as `-o json` and as the screen without colours.
    `events`: None where no agent answers.
    """

    facts: NodeFacts
    places: Places
    config: Config
    document: str
    screen: str
    events: Events | None = None


class Part(NamedTuple):
    """One file. `make` returns its text, or None where there is nothing to write: `absent` gives the reason."""

    path: str
    make: Callable[[BundleContents, Redactor], str | None]
    title: str
    absent: Callable[[NodeFacts], str] = lambda facts: "there is none"


def facts_redactor(facts: NodeFacts) -> Redactor:
    """A redactor that also removes, everywhere, the values that are left out of the kernel's command line."""
    line = facts.kernel.cmdline if facts.kernel else None
    return Redactor(filters.left_out_of_cmdline(line or ""))


def allowed_view(view: View, redactor: Redactor) -> View:
    """A View without arguments of processes: NVML reports names as the processes set them, at times with arguments."""
    gpus: list[Gpu] = []
    for gpu in view.snapshot.gpus:
        names = ((process, (process.name or "").split()) for process in gpu.processes or ())
        programs = tuple(replace(process, name=words[0] if words else None) for process, words in names)
        gpus.append(gpu if gpu.processes is None else replace(gpu, processes=programs))
    return redacted(replace(view, snapshot=replace(view.snapshot, gpus=tuple(gpus))), View, redactor)


def allowed_cluster(cluster: ClusterFacts, redactor: Redactor) -> ClusterFacts:
    """Labels and annotations of known domains, and known variables."""

    def allowed_pods(pods: tuple[NodePod, ...]) -> tuple[NodePod, ...]:
        return tuple(
            replace(
                pod,
                labels=_of_domains(pod.labels, LABEL_DOMAINS),
                annotations=_of_domains(pod.annotations, ANNOTATION_DOMAINS),
                environment=_allowed_environment(pod.environment),
            )
            for pod in pods
        )

    labels = _of_domains(cluster.node.labels, LABEL_DOMAINS)
    annotations = _of_domains(cluster.node.annotations, ANNOTATION_DOMAINS)
    known = replace(
        cluster,
        node=replace(cluster.node, labels=labels, annotations=annotations),
        plugin_environment=cluster.plugin_environment and _allowed_environment(cluster.plugin_environment),
        pods=cluster.pods and allowed_pods(cluster.pods),
        pending=cluster.pending and allowed_pods(cluster.pending),
    )
    return redacted(known, ClusterFacts, redactor)


def redacted(value: msgspec.Struct, type_: type[T], redactor: Redactor) -> T:
    """A record with every text redacted.

    Raises:
        msgspec.ValidationError: redaction left no valid record.
    """
    return msgspec.convert(redactor.document(msgspec.to_builtins(value, str_keys=False)), prepared(type_))


def _allowed_environment(values: dict[str, str]) -> dict[str, str]:
    return {name: value if name in ENVIRONMENT else MARK for name, value in values.items()}


def _of_domains(labels: dict[str, str], domains: tuple[str, ...]) -> dict[str, str]:
    own = (".nvidia.com", ".gpuwatch.io")
    domain_of = {key: key.partition("/")[0] for key in labels}
    return {key: labels[key] for key, domain in domain_of.items() if domain in domains or domain.endswith(own)}


def parts(contents: BundleContents, redactor: Redactor) -> Iterator[BundleMember]:
    """Every part, or why it is missing; a part that fails does not affect the others."""
    for part in PARTS:
        try:
            text = part.make(contents, redactor)
        except Exception as error:
            log.warning("the bundle lacks %s: %s", part.path, error, exc_info=True)
            yield BundleMember(path=part.path, failed=f"{type(error).__name__}: it could not be made")
            continue
        body = (text or "").encode()
        if text is None:
            yield BundleMember(path=part.path, failed=redactor.text(part.absent(contents.facts)))
        elif len(body) <= PART_BYTES:
            yield BundleMember(path=part.path, body=body)
        elif part.path.endswith(".json"):
            yield BundleMember(path=part.path, failed=f"it is longer than {PART_BYTES} bytes")
        else:
            cut = f"only the last {PART_BYTES} bytes of {len(body)}"
            yield BundleMember(path=part.path, body=body[-PART_BYTES:], cut=cut)


def _json(value: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode() + "\n"


def _of_section(
    section: str,
    title: str,
    allowed: Callable[[Any, Redactor], Any] = lambda value, redactor: redactor.document(msgspec.to_builtins(value)),
    absent: str = "it was not looked for",
) -> Part:
    """A section of the facts as gpuwatch/SECTION.json."""

    def make(contents: BundleContents, redactor: Redactor) -> str | None:
        value = getattr(contents.facts, section)
        return None if value is None else _json(allowed(value, redactor))

    return Part(f"gpuwatch/{section}.json", make, title, lambda facts: facts.unread.get(section, absent))


def _host(contents: BundleContents, redactor: Redactor) -> str:
    """Of the kernel's command line only what `filters.cmdline` keeps."""
    facts = contents.facts
    read = {section: getattr(facts, section) for section in HOST_SECTIONS if section != "kernel_log"}  # it has a part
    unread: dict[str, str] = {name: redactor.text(why) for name, why in facts.unread.items() if name in HOST_SECTIONS}
    host = HostFacts(**read)
    if host.kernel is not None and host.kernel.cmdline:
        host = replace(host, kernel=replace(host.kernel, cmdline=filters.cmdline(host.kernel.cmdline).strip()))
    host = redacted(host, HostFacts, redactor)
    return _json(RecordedHost(at=facts.at, plain=facts.plain, host=host, unread=unread))


def _diagnosis(contents: BundleContents, redactor: Redactor) -> str:
    document = redactor.document(json.loads(contents.document))
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _events(contents: BundleContents, redactor: Redactor) -> str | None:
    """The newest of each kind."""
    events = contents.events
    if events is None:
        return None
    every = {name: getattr(events, name) for name in events.__struct_fields__}
    newest = {name: value[-MOST_EVENTS:] for name, value in every.items() if isinstance(value, tuple)}
    return _json(redacted(replace(events, **newest), Events, redactor))


def _kernel_log(contents: BundleContents, redactor: Redactor) -> str | None:
    """In the format of dmesg."""
    lines = contents.facts.kernel_log
    if lines is None:
        return None
    stamped = (f"[{line.at:12.6f}] {line.text}\n" if line.at is not None else f"{line.text}\n" for line in lines)
    return redactor.text("".join(stamped))


def _config(contents: BundleContents, redactor: Redactor) -> str:
    import yaml

    return yaml.safe_dump(redactor.document(msgspec.to_builtins(contents.config)), sort_keys=False)


def _versions(contents: BundleContents, redactor: Redactor) -> str:
    machine = platform.uname()
    return _json(
        {
            "gpuwatch": __version__,
            "python": platform.python_version(),
            "machine": machine.machine,
            "system": f"{machine.system} {machine.release}",
            "made": rfc3339(contents.facts.at),
            "node": {key: value for key, value in inventory(contents.facts).items() if not key.startswith("gpu.")},
        }
    )


PARTS: tuple[Part, ...] = (
    Part("diagnosis.txt", lambda contents, redactor: redactor.text(contents.screen),
         "the diagnosis as the screen shows it"),
    Part("diagnosis.json", _diagnosis, "the same for programs: every check with its evidence"),
    Part("gpuwatch/versions.json", _versions, "versions of gpuwatch, kernel, driver and what else the node is made of"),
    Part("gpuwatch/config.yaml", _config, "the configuration of gpuwatch that was in force"),
    _of_section("view", "what the driver reported of every GPU, its users, and gpuwatch's findings", allowed_view),
    _of_section("earlier", "the same, a moment before", allowed_view),
    _of_section("cluster", "the Node and its GPU pods, with known labels only", allowed_cluster),
    _of_section("exporters", "other exporters of GPU metrics on the node"),
    _of_section("active", "the results of the active checks",
                absent="the GPUs were not put to work: --active does that"),
    Part(f"{RECORDED}/{NAME}", _host, "what was read of the node's files"),
    Part("gpuwatch/events.json", _events, "XIDs, findings and actions that an agent remembers",
         lambda facts: "no agent was asked, or it did not answer"),
    Part("gpuwatch/kernel.log", _kernel_log, "kernel messages about GPUs since the last boot",
         lambda facts: facts.unread.get("kernel_log", "it was not looked for")),
)  # fmt: skip
