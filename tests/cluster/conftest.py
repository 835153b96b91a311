"""API servers for the tests of this folder: a real one, started once, and the simulated one."""

import os
from collections.abc import Iterator
from itertools import count
from typing import NoReturn

import pytest

from tests.cluster.api import Api
from tests.cluster.binaries import NoBinaries, find
from tests.cluster.controlplane import ControlPlane


def without(reason: str) -> NoReturn:
    """Skip the tests that need a control plane; in CI, where nothing may go untested by accident, fail them."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver for all tests of this process; objects of other tests are there, so use own names."""
    try:
        binaries = find() or without("kube-apiserver and etcd are not built; run: make test-cluster")
    except NoBinaries as none:
        without(str(none))
    with ControlPlane(tmp_path_factory.mktemp("control-plane"), binaries) as plane:
        yield plane


@pytest.fixture(scope="session", params=[pytest.param("real", marks=pytest.mark.cluster)])
def apiserver(request) -> Api:
    """Each API server in turn: what holds for one must hold for the other."""
    return Api(request.getfixturevalue("control_plane"))


@pytest.fixture(scope="session")
def names() -> Iterator[str]:
    """Names for objects, each given once."""
    return (f"test-{number}" for number in count())


@pytest.fixture
def name(names) -> str:
    """A name that no other test uses."""
    return next(names)
