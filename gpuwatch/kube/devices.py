"""Dynamic resource allocation: which devices of the Node's ResourceSlices are a GPU, and DeviceTaintRules about them.

The version of DeviceTaintRules depends on the Kubernetes release (v1alpha3 from 1.33, v1beta2 from 1.35, v1 from 1.37),
and only a cluster that has enabled them serves them, so the version is asked for.
"""

from gpuwatch.kube.errors import ApiCall, Forbidden, NotFound
from gpuwatch.kube.objects import DeviceRule, DraState, GpuDevice
from gpuwatch.kube.transport import Transport, path_segment
from gpuwatch.kube.wire import Wire, WireList, WireObject, decode

GROUP = "/apis/resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1", "v1alpha3")
RULES, SLICES = "devicetaintrules", "resourceslices"
DRIVER = "gpu.nvidia.com"
"""NVIDIA's; its pools have the name of their node."""

NOT_SERVED = "the cluster serves no DeviceTaintRules"

MANAGED = {"app.kubernetes.io/managed-by": "gpuwatch"}


class _GroupVersion(Wire, frozen=True):
    version: str = ""


class _Group(Wire, frozen=True):
    versions: list[_GroupVersion] | None = None


class _Named(Wire, frozen=True):
    name: str = ""


class _Resources(Wire, frozen=True):
    resources: list[_Named] | None = None


class _Attribute(Wire, frozen=True):
    string: str | None = None


class _Basic(Wire, frozen=True):
    attributes: dict[str, _Attribute] | None = None


class _Device(Wire, frozen=True):
    name: str = ""
    attributes: dict[str, _Attribute] | None = None
    basic: _Basic | None = None  # v1beta1 and before


class _Pool(Wire, frozen=True):
    name: str = ""
    generation: int = 0


class _SliceSpec(Wire, frozen=True):
    driver: str = ""
    node_name: str | None = None
    pool: _Pool = _Pool()
    devices: list[_Device] | None = None


class _Slice(WireObject, frozen=True):
    spec: _SliceSpec = _SliceSpec()


class _Selector(Wire, frozen=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None


class _Taint(Wire, frozen=True):
    key: str = ""
    value: str = ""
    effect: str = ""


class _RuleSpec(Wire, frozen=True):
    device_selector: _Selector | None = None
    taint: _Taint = _Taint()


class WireRule(WireObject, frozen=True):
    """A DeviceTaintRule."""

    spec: _RuleSpec = _RuleSpec()


def read_devices(transport: Transport, node: str) -> DraState:
    """The GPUs among the devices of a Node, and gpuwatch's rules in the whole cluster. Raises KubeError; a cluster
    that does not serve them, or forbids them to us, is no error: `why` is the reason.
    """
    try:
        served = _served(transport)
        rules = next((version for version in VERSIONS if RULES in served.get(version, ())), "")
        slices = next((version for version in VERSIONS if SLICES in served.get(version, ())), "")
        if not rules or not slices:
            return DraState(why=NOT_SERVED)
        call = ApiCall("list", SLICES)
        body = transport.request(call, f"{GROUP}/{slices}/{SLICES}", query={"fieldSelector": f"spec.nodeName={node}"})
        devices = _gpus(decode(call, body, WireList[_Slice]).items or [], node)
        if not devices:
            return DraState(why="no ResourceSlice of this Node has its GPUs")
        call = ApiCall("list", RULES)
        query = {"labelSelector": ",".join(f"{key}={value}" for key, value in MANAGED.items())}
        found = decode(call, transport.request(call, f"{GROUP}/{rules}/{RULES}", query=query), WireList[WireRule])
    except (NotFound, Forbidden) as error:
        return DraState(why=f"DeviceTaintRules cannot be used: {error.why}")
    return DraState(version=rules, devices=devices, rules=tuple(map(rule_of, found.items or ())))


def rule_path(version: str, name: str = "") -> str:
    """The path of one rule, or of all."""
    return f"{GROUP}/{version}/{RULES}{name and f'/{path_segment(name)}'}"


def rule_of(wire: WireRule) -> DeviceRule:
    """One rule."""
    meta, selector = wire.metadata, wire.spec.device_selector or _Selector()
    return DeviceRule(
        name=meta.name,
        uid=meta.uid,
        owner=(meta.annotations or {}).get("gpuwatch.io/owner", ""),
        pool=selector.pool or "",
        device=selector.device or "",
        value=wire.spec.taint.value,
        effect=wire.spec.taint.effect,
    )


def rules_version(transport: Transport) -> str:
    """In which version the cluster serves DeviceTaintRules; empty: it does not. Raises KubeError."""
    try:
        served = _served(transport)
    except NotFound:
        return ""
    return next((version for version in VERSIONS if RULES in served.get(version, ())), "")


def _served(transport: Transport) -> dict[str, frozenset[str]]:
    """Version -> plural names of the group's resources."""
    call = ApiCall("get", "resource.k8s.io")
    group = decode(call, transport.request(call, GROUP), _Group)
    present = {each.version for each in group.versions or ()}
    served = {}
    for version in VERSIONS:
        if version in present:
            found = decode(call, transport.request(call, f"{GROUP}/{version}"), _Resources)
            served[version] = frozenset(each.name for each in found.resources or ())
    return served


def _gpus(slices: list[_Slice], node: str) -> tuple[GpuDevice, ...]:
    """By the attributes `uuid`, of a MIG instance `parentUUID`; only of NVIDIA's driver, in this Node's own pool."""
    own = [s.spec for s in slices if (s.spec.driver, s.spec.node_name, s.spec.pool.name) == (DRIVER, node, node)]
    newest = max((spec.pool.generation for spec in own), default=0)
    found = []
    for device in (d for spec in own if spec.pool.generation == newest for d in spec.devices or ()):
        attributes = device.attributes or (device.basic and device.basic.attributes) or {}
        uuid = (attributes.get("parentUUID") or attributes.get("uuid") or _Attribute()).string
        if uuid:
            found.append(GpuDevice(gpu=uuid, pool=node, name=device.name))
    return tuple(found)
