"""A kubelet as far as pod-resources goes: real gRPC on a unix socket, changing answers, and faults.

It uses the same schema as the client; tests check that this agrees with the kubelet's api.proto.
"""

import contextlib
import os
import socket
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, Self

from gpuwatch.model.workload import Allocatable, Allocation
from gpuwatch.workloads.podresources_proto import METHODS, SCHEMA, SERVICE
from gpuwatch.workloads.wire import encode

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # a stopped server is part of the simulation: no line on stderr
import grpc

Fault = Literal[
    "absent",  # no socket
    "refused",  # a socket file without a listener
    "noise",  # the listener does not use HTTP/2
    "garbage",  # gRPC whose messages are not protobuf
    "oversized",  # `reply_bytes` of pods in every answer to List
    "slow",  # answers after `delay` seconds
    "old",  # Get and GetAllocatableResources are not implemented
    "gated",  # both are switched off by feature gate
    "limited",  # calls are refused for being too many
]


class SimKubelet:
    """Serve pod-resources on `path` between `start()` and `stop()`, or as a context manager."""

    def __init__(self, path: Path, *, reply_bytes: int = 5 << 20, delay: float = 30.0) -> None:
        self.path = path
        self.calls: list[str] = []  # methods in the order they were asked, for tests and demonstrations
        self._allocations: tuple[Allocation, ...] = ()
        self._allocatable: tuple[Allocatable, ...] = ()
        self._fault: Fault | None = None
        self._reply_bytes = reply_bytes
        self._delay = delay
        self._stopping = threading.Event()
        self._undo = contextlib.ExitStack()

    def show(self, allocations: Iterable[Allocation], allocatable: Iterable[Allocatable] = ()) -> None:
        """Answer with these from the next call on."""
        self._allocations, self._allocatable = tuple(allocations), tuple(allocatable)

    def fail(self, fault: Fault | None) -> None:
        """Restart with this fault, or without any. Clients meet a new kubelet."""
        self.stop()
        self._fault = fault
        self.start()

    def start(self) -> Self:
        """Serve. Raises OSError or RuntimeError when the socket cannot be made."""
        self._stopping.clear()
        if self._fault == "absent":
            return self
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._undo.callback(self.path.unlink, missing_ok=True)
        if self._fault in ("refused", "noise"):
            listener = socket.socket(socket.AF_UNIX)
            self._undo.callback(listener.close)
            self.path.unlink(missing_ok=True)
            listener.bind(str(self.path))
            if self._fault == "noise":
                listener.listen()
                listener.settimeout(0.05)
                thread = threading.Thread(target=self._make_noise, args=(listener,), name="sim-kubelet-noise")
                thread.start()
                self._undo.callback(thread.join)
            return self
        pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="sim-kubelet")
        server = grpc.server(pool, options=(("grpc.max_send_message_length", -1),))
        handlers = {
            method: grpc.unary_unary_rpc_method_handler(
                partial(self._handle, method), request_deserializer=bytes, response_serializer=bytes
            )
            for method in METHODS
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        server.add_insecure_port(f"unix:{self.path}")
        server.start()
        self._undo.callback(pool.shutdown)
        self._undo.callback(lambda: server.stop(grace=None).wait())
        return self

    def stop(self) -> None:
        """Stop serving and remove the socket."""
        self._stopping.set()
        self._undo.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _make_noise(self, listener: socket.socket) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.sendall(b"SSH-2.0-not-a-kubelet\r\n" * 50)

    def _handle(self, method: str, _: bytes, context: grpc.ServicerContext) -> bytes:
        self.calls.append(method)
        fault = self._fault
        if fault == "slow":
            self._stopping.wait(self._delay)
        elif fault == "limited":
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit")
        elif fault == "old" and method != "List":
            context.abort(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {method}")
        elif fault == "gated" and method != "List":
            context.abort(grpc.StatusCode.UNKNOWN, f"PodResources API {method} method disabled")
        elif fault == "garbage":
            return b"\xff\xfe no protobuf"
        answer = {"List": self._list, "GetAllocatableResources": self._list_allocatable}[method]
        return encode(SCHEMA, METHODS[method][1], answer())

    def _list(self) -> dict[str, Any]:
        """Allocations of one container become rows of one ContainerResources."""

        def container_of(row: Allocation) -> tuple[str, str, str]:
            return row.workload.namespace or "", row.workload.pod or "", row.workload.container or ""

        pods = []
        in_order = sorted(self._allocations, key=container_of)
        for (namespace, name), of_pod in groupby(in_order, key=lambda row: container_of(row)[:2]):
            containers = []
            for (_, _, container), rows in groupby(of_pod, key=container_of):
                devices, claims = [], []
                for row in rows:
                    if row.claim is None:
                        devices.append({"resource_name": row.resource, "device_ids": row.device_ids})
                    else:
                        claims.append(_claim(row, row.claim))
                containers.append({"name": container, "devices": devices, "dynamic_resources": claims})
            pods.append({"name": name, "namespace": namespace, "containers": containers})
        if self._fault == "oversized":
            pods.append({"name": "x" * self._reply_bytes, "namespace": "padding"})
        return {"pod_resources": pods}

    def _list_allocatable(self) -> dict[str, Any]:
        """One row per device, as a kubelet with NUMA topology writes them."""
        rows = [(row.resource, device) for row in self._allocatable for device in row.device_ids]
        return {"devices": [{"resource_name": resource, "device_ids": [device]} for resource, device in rows]}


def _claim(row: Allocation, claim: str) -> dict[str, Any]:
    namespace, _, name = claim.partition("/")
    parts = []
    for device in row.device_ids:
        cdi, own = (device, "") if "=" in device else (f"k8s.{row.resource}/device={device}", device)
        part = {"driver_name": row.resource, "pool_name": "node", "device_name": own, "cdi_devices": [{"name": cdi}]}
        parts.append(part)
    return {"claim_name": name, "claim_namespace": namespace, "claim_resources": parts}
