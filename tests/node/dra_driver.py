"""A DRA driver for tests that serves the GPUs of the fake libnvidia-ml as NVIDIA's `gpu.nvidia.com` serves real ones.

    python -m tests.node.dra_driver NODE KUBECONFIG

Names, attributes, pool and CDI ids are those of NVIDIA's driver 25.8: devices by minor, MIG instances by profile id and
placement, `k8s.gpu.nvidia.com/device=NAME` for the device and, where the claim has a sharing configuration,
`k8s.gpu.nvidia.com/claim=UID-NAME` besides.
"""

import json
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pynvml
from kubernetes import client, config

from tests.protobuf_classes import message_classes

DRIVER = "gpu.nvidia.com"
VENDOR = f"k8s.{DRIVER}"
GROUP, VERSION = "resource.k8s.io", "v1"
CDI = Path("/var/run/cdi")
KUBELET = Path("/var/lib/kubelet")
ARCHITECTURES = {7: "Ampere", 8: "Ada Lovelace", 9: "Hopper", 10: "Blackwell"}
SERVICE = "k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin"

MESSAGES = message_classes({  # k8s.io/kubelet/pkg/apis/{dra,pluginregistration}/v1; a map is a list of key and value
    "Empty": (),
    "PluginInfo": ((1, "type", "string"), (2, "name", "string"), (3, "endpoint", "string"), (4, "versions", "string*")),
    "RegistrationStatus": ((2, "error", "string"),),
    "Claims": ((1, "claims", "Claim*"),),
    "Claim": ((1, "namespace", "string"), (2, "uid", "string"), (3, "name", "string")),
    "Prepared": ((1, "claims", "PreparedEntry*"),),
    "PreparedEntry": ((1, "key", "string"), (2, "value", "PreparedClaim")),
    "PreparedClaim": ((1, "devices", "Device*"), (2, "error", "string")),
    "Device": (
        (1, "request_names", "string*"),
        (2, "pool_name", "string"),
        (3, "device_name", "string"),
        (4, "cdi_device_ids", "string*"),
    ),
    "Unprepared": ((1, "claims", "UnpreparedEntry*"),),
    "UnpreparedEntry": ((1, "key", "string"), (2, "value", "Empty")),
})  # fmt: skip


def devices() -> Iterator[dict[str, Any]]:
    """Devices of a ResourceSlice: each GPU, or its instances when it is in MIG mode."""
    pynvml.nvmlInit()
    driver = _version(pynvml.nvmlSystemGetDriverVersion())
    cuda = pynvml.nvmlSystemGetCudaDriverVersion()
    for index in range(pynvml.nvmlDeviceGetCount()):
        gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
        name, uuid = f"gpu-{pynvml.nvmlDeviceGetMinorNumber(gpu)}", pynvml.nvmlDeviceGetUUID(gpu)
        bus = pynvml.nvmlDeviceGetPciInfo(gpu).busId[-12:].lower()
        common = {
            "productName": {"string": pynvml.nvmlDeviceGetName(gpu)},
            "brand": {"string": "Nvidia"},
            "architecture": {"string": ARCHITECTURES.get(pynvml.nvmlDeviceGetArchitecture(gpu), "Unknown")},
            "cudaComputeCapability": {"version": "{}.{}.0".format(*pynvml.nvmlDeviceGetCudaComputeCapability(gpu))},
            "driverVersion": {"version": driver},
            "cudaDriverVersion": {"version": f"{cuda // 1000}.{cuda % 1000 // 10}.0"},
            "resource.kubernetes.io/pciBusID": {"string": bus},
            "resource.kubernetes.io/pcieRoot": {"string": f"pci{bus[:7]}"},
        }
        if not _is_mig(gpu):
            own = {"type": {"string": "gpu"}, "uuid": {"string": uuid}}
            yield _device(name, common | own, pynvml.nvmlDeviceGetMemoryInfo(gpu).total)
            continue
        for mig in _instances(gpu):
            instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu, pynvml.nvmlDeviceGetGpuInstanceId(mig))
            info = pynvml.nvmlGpuInstanceGetInfo(instance)
            profile = pynvml.nvmlDeviceGetName(mig).rpartition("MIG ")[2]
            place = f"{info.profileId}-{info.placement.start}-{info.placement.size}"
            own = {
                "type": {"string": "mig"},
                "uuid": {"string": pynvml.nvmlDeviceGetUUID(mig)},
                "parentUUID": {"string": uuid},
                "profile": {"string": profile},
            }
            yield _device(f"{name}-mig-{place}", common | own, pynvml.nvmlDeviceGetMemoryInfo(mig).total)


def _device(name: str, attributes: dict[str, Any], memory: int) -> dict[str, Any]:
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": str(memory)}}}


def _is_mig(gpu: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(gpu)[0])
    except pynvml.NVMLError_NotSupported:
        return False


def _instances(gpu: Any) -> Iterator[Any]:
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            yield pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index)
        except pynvml.NVMLError_NotFound:
            return


def _version(text: str) -> str:
    """A semantic version: 550.54.15 as it is, 580.05 with a third number, none with a leading zero."""
    return ".".join(str(int(part)) for part in (*text.split("."), "0", "0")[:3])


class Driver:
    """The kubelet's plugin: it prepares claims that the scheduler has allocated."""

    def __init__(self, node: str, api: client.CustomObjectsApi) -> None:
        self.node, self._api = node, api
        self._uuids: dict[str, str] = {}

    def publish(self) -> None:
        """One ResourceSlice, and CDI's description of the same devices."""
        found = list(devices())
        self._uuids = {each["name"]: each["attributes"]["uuid"]["string"] for each in found}
        name = f"{self.node}-{DRIVER}"
        pool = {"name": self.node, "generation": 1, "resourceSliceCount": 1}
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {"driver": DRIVER, "nodeName": self.node, "pool": pool, "devices": found},
        }
        slices = self._api.list_cluster_custom_object(GROUP, VERSION, "resourceslices")["items"]
        if any(each["metadata"]["name"] == name for each in slices):
            self._api.delete_cluster_custom_object(GROUP, VERSION, "resourceslices", name)
        self._api.create_cluster_custom_object(GROUP, VERSION, "resourceslices", body)
        edits = {name: {"env": [f"GPUWATCH_TEST_DEVICE_{uuid}=1"]} for name, uuid in self._uuids.items()}
        _write_cdi("device", "base", edits, {"env": ["NVIDIA_VISIBLE_DEVICES=void"]})

    def prepare(self, request: Any, _: grpc.ServicerContext) -> Any:
        """NodePrepareResources."""
        reply = MESSAGES["Prepared"]()
        for claim in request.claims:
            value = reply.claims.add(key=claim.uid).value
            whole = self._api.get_namespaced_custom_object(
                GROUP, VERSION, claim.namespace, "resourceclaims", claim.name
            )
            allocation = whole["status"]["allocation"]["devices"]
            shared = {}
            for result in (each for each in allocation["results"] if each["driver"] == DRIVER):
                name = result["device"]
                ids = [f"{VENDOR}/device={name}"]
                if allocation.get("config"):
                    ids.append(f"{VENDOR}/claim={claim.uid}-{name}")
                    shared[f"{claim.uid}-{name}"] = {"env": [f"GPUWATCH_TEST_SHARED_{self._uuids[name]}=1"]}
                value.devices.add(
                    request_names=[result["request"]], pool_name=result["pool"], device_name=name, cdi_device_ids=ids
                )
            if shared:
                _write_cdi("claim", claim.uid, shared)
        return reply

    def unprepare(self, request: Any, _: grpc.ServicerContext) -> Any:
        """NodeUnprepareResources."""
        reply = MESSAGES["Unprepared"]()
        for claim in request.claims:
            reply.claims.add(key=claim.uid).value.SetInParent()
            _cdi_file("claim", claim.uid).unlink(missing_ok=True)
        return reply


def _cdi_file(kind: str, name: str) -> Path:
    return CDI / f"{VENDOR}-{kind}_{name}.json"


def _write_cdi(kind: str, name: str, edits: dict[str, Any], common: dict[str, Any] | None = None) -> None:
    listed = [{"name": device, "containerEdits": each} for device, each in edits.items()]
    spec = {"cdiVersion": "0.5.0", "kind": f"{VENDOR}/{kind}", "devices": listed, "containerEdits": common or {}}
    CDI.mkdir(exist_ok=True)
    _cdi_file(kind, name).write_text(json.dumps(spec))


def serve(service: str, socket: Path, methods: dict[str, tuple[Callable[..., Any], str, str]]) -> grpc.Server:
    """`methods`: what answers, its request and its reply."""
    socket.parent.mkdir(parents=True, exist_ok=True)
    socket.unlink(missing_ok=True)
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            answer, MESSAGES[request].FromString, MESSAGES[reply].SerializeToString
        )
        for name, (answer, request, reply) in methods.items()
    }
    server = grpc.server(ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    return server


def main(node: str, kubeconfig: str) -> None:
    """Serve until SIGTERM."""
    ended = [signal.SIGTERM, signal.SIGINT]
    signal.pthread_sigmask(signal.SIG_BLOCK, ended)
    driver = Driver(node, client.CustomObjectsApi(config.new_client_from_config(kubeconfig)))
    driver.publish()
    endpoint, registrar = KUBELET / f"plugins/{DRIVER}/dra.sock", KUBELET / f"plugins_registry/{DRIVER}-reg.sock"
    info = {"type": "DRAPlugin", "name": DRIVER, "endpoint": str(endpoint), "versions": [SERVICE.partition("dra.")[2]]}

    def registered(status: Any, _: grpc.ServicerContext) -> Any:
        print(f"registered: {status.error or 'yes'}", flush=True)
        return MESSAGES["Empty"]()

    servers = [
        serve(
            SERVICE,
            endpoint,
            {
                "NodePrepareResources": (driver.prepare, "Claims", "Prepared"),
                "NodeUnprepareResources": (driver.unprepare, "Claims", "Unprepared"),
            },
        ),
        serve(
            "pluginregistration.Registration",
            registrar,
            {
                "GetInfo": (lambda *_: MESSAGES["PluginInfo"](**info), "Empty", "PluginInfo"),
                "NotifyRegistrationStatus": (registered, "RegistrationStatus", "Empty"),
            },
        ),
    ]
    signal.sigwait(ended)
    for server in servers:
        server.stop(None).wait()
    registrar.unlink(missing_ok=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
