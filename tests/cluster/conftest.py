"""API servers for the tests of this folder: a real one, started once, and the simulated one."""

import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.cluster.api import NODES, PODS, STRATEGIC, Api
from tests.cluster.binaries import Binaries, NoBinaries, find
from tests.cluster.controlplane import ControlPlane
from tests.cluster.installing import Installing
from tests.cluster.simulated import Simulated


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


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver for all tests of this process; objects of other tests are there, so use own names."""
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), binaries()) as plane:
        yield plane


@pytest.fixture(scope="module")
def fresh(tmp_path_factory) -> Iterator[Installing]:
    """The administrator of an API server of the module's own, in which nobody has made anything yet."""
    with ControlPlane(tmp_path_factory.mktemp("fresh"), binaries()) as plane:
        yield Installing(plane).prepare()


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


@pytest.fixture(scope="session", params=["simulated", pytest.param("control_plane", marks=pytest.mark.cluster)])
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
