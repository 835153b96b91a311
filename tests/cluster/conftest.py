"""API servers for the tests of this folder: real ones, each started once, and the simulated one."""

import contextlib
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

import pytest

from tests.cluster.api import NODES, PODS, STRATEGIC, Api
from tests.cluster.binaries import Binaries, NoBinaries, find
from tests.cluster.controlplane import ControlPlane
from tests.cluster.installing import Installing
from tests.cluster.simulated import Simulated

HERE = Path(__file__).parent
Made = TypeVar("Made")

DEVICE_TAINTS = (
    "--feature-gates=DRADeviceTaints=true,DRADeviceTaintRules=true",
    "--runtime-config=resource.k8s.io/v1beta2=true",
)
"""Options with which kube-apiserver 1.36 serves DeviceTaintRules."""


class Planes:
    """The control planes of this process: started when first asked for, stopped after the last test that may ask.

    They outlast modules, as a start costs some seconds of CPU, but not this folder: an idle one costs, too.
    """

    def __init__(self) -> None:
        self._running = contextlib.ExitStack()
        self._found: dict[str, ControlPlane] = {}
        self._made: dict[tuple[str, Callable[..., Any]], Any] = {}

    def get(self, name: str, tmp_path_factory: pytest.TempPathFactory, options: tuple[str, ...] = ()) -> ControlPlane:
        """That of a name; `options`: further ones of its kube-apiserver."""
        if name not in self._found:
            plane = ControlPlane(tmp_path_factory.mktemp(name), binaries(), options)
            self._found[name] = self._running.enter_context(plane)
        return self._found[name]

    def once(self, api: Api, make: Callable[[Api], Made]) -> Made:
        """What a function made on a plane, called for each plane once.

        A fixture of a module cannot do this: a worker that takes tests from another may come back to a module, whose
        fixtures are then made again, while what the first ones made is still on the plane.
        """
        key = (api.server.url, make)
        if key not in self._made:
            self._made[key] = make(api)
        return cast(Made, self._made[key])

    def stop(self) -> None:
        """All of them; the next one to ask starts a new one."""
        self._found.clear()
        self._made.clear()
        self._running.close()


PLANES = Planes()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests with a control plane come first, and so in one process.

    Of several workers each begins with its own part of the list, and one that runs out of tests takes those at the end
    of another's part.
    """
    items.sort(key=lambda item: item.get_closest_marker("cluster") is None)


@pytest.hookimpl(trylast=True)  # after what modules tear down
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the control planes when the tests of this folder are over."""
    if nextitem is None or HERE not in nextitem.path.parents:
        PLANES.stop()


@pytest.fixture(scope="session", autouse=True)
def stopped() -> Iterator[None]:
    """And when the run is over: no test leaves a process."""
    yield
    PLANES.stop()


def without(reason: str) -> NoReturn:
    """Skip the tests that need a control plane; in CI, where nothing may go untested by accident, fail them."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def binaries() -> Binaries:
    """Those that are there; else as `without`."""
    try:
        return find() or without("kube-apiserver and etcd are not built; run: make test-cluster")
    except NoBinaries as none:
        without(str(none))


@pytest.fixture(scope="module")
def control_plane(tmp_path_factory) -> ControlPlane:
    """etcd and kube-apiserver for all tests of this process; objects of other tests are there, so use own names."""
    return PLANES.get("control-plane", tmp_path_factory)


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Installing:
    """The administrator of another API server, in which nothing is installed: a test takes away what it installs."""
    return Installing(PLANES.get("fresh", tmp_path_factory, DEVICE_TAINTS)).prepare()


@pytest.fixture
def install(fresh, tmp_path_factory) -> Iterator[Callable[..., Path]]:
    """Installs what `Installing.folder` is told, and takes it away when the test is over."""
    folders = []

    def install(*components: str, **more: Any) -> Path:
        folders.append(fresh.folder(tmp_path_factory.mktemp("folder"), *components, **more))
        fresh.kubectl("apply", "-k", folders[-1])
        return folders[-1]

    yield install
    for folder in folders:
        fresh.uninstall(folder)


@pytest.fixture(scope="session")
def simulated(tmp_path_factory) -> Iterator[Simulated]:
    """A simulated API server for all tests of this process."""
    with Simulated(tmp_path_factory.mktemp("simulated")) as server:
        yield server


@pytest.fixture(scope="module", params=["simulated", pytest.param("control_plane", marks=pytest.mark.cluster)])
def apiserver(request) -> Api:
    """Each API server in turn: what holds for one must hold for the other."""
    return Api(request.getfixturevalue(request.param))


@pytest.fixture(scope="session")
def names() -> Iterator[str]:
    """Names for objects, each given once."""
    return (f"test-{number}" for number in count())


@pytest.fixture
def name(names) -> str:
    """A name that no other test uses."""
    return next(names)


@pytest.fixture
def node(apiserver, name) -> dict[str, Any]:
    """A new node."""
    status, body = apiserver.request("POST", NODES, {"metadata": {"name": name}})
    assert status == 201, body
    return body


@pytest.fixture
def pod(apiserver, node, name) -> dict[str, Any]:
    """A pod that runs on `node`, with the label `app` of its name."""
    spec = {"nodeName": node["metadata"]["name"], "containers": [{"name": "main", "image": "none"}]}
    made = {"metadata": {"name": name, "labels": {"app": name}}, "spec": spec}
    assert apiserver.request("POST", PODS, made).status == 201
    running = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}
    status, body = apiserver.request("PATCH", f"{PODS}/{name}/status", running, STRATEGIC)
    assert status == 200, body
    return body
