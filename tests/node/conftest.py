"""A real node for the tests of this folder, started once: `make test-node`."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gobuild import NoBinaries
from tests.image.base import CannotBuild, product_image
from tests.node.cluster import PRODUCT, NodeCluster
from tests.node.machine import lacks
from tests.node.work import POLICY, SECONDS, overlay
from tests.waiting import until

RUNTIME_CLASS = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "nvidia",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The tests of this folder share one node, and run apart from all others: with `-m node` only."""
    own = [item for item in items if item.nodeid.startswith("tests/node/")]
    if config.option.markexpr == "node":
        for item in own:
            item.add_marker("node")
    elif own:
        config.hook.pytest_deselected(items=own)
        items[:] = [item for item in items if not item.nodeid.startswith("tests/node/")]


@pytest.fixture(scope="session")
def node() -> Iterator[NodeCluster]:
    """The node, with gpuwatch's image. Skips where there can be none; in CI, where all is to be tested, fails."""
    reason = lacks() or next((f"it needs {each}" for each in ("containerd", "ctr") if not shutil.which(each)), "")
    folder = Path(tempfile.mkdtemp(prefix="gpuwatch-node-", dir="/var/tmp"))  # on a disk: overlays do not lie on tmpfs
    try:
        if reason:
            raise CannotBuild(reason)
        image = product_image()
        with NodeCluster(folder) as cluster:
            cluster.load(image, PRODUCT)
            yield cluster
    except (CannotBuild, NoBinaries) as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no real node: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def plugin(node: NodeCluster) -> NodeCluster:
    """The node with NVIDIA's device plugin."""
    node.start_plugin()
    until(lambda: node.allocatable().get("nvidia.com/gpu") == 8, "the plugin offers 8 GPUs", SECONDS, step=0.5)
    node.apply(RUNTIME_CLASS, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}})
    return node


@pytest.fixture(scope="session")
def deployed(plugin: NodeCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeCluster]:
    """The GPU Operator's overlay with everything that acts on a node."""
    folder = overlay(tmp_path_factory.mktemp("kustomize", numbered=True), POLICY)
    plugin.deployment = folder
    plugin.kubectl("apply", "-k", folder)
    plugin.kubectl("-n", "gpuwatch", "rollout", "status", "daemonset/gpuwatch", f"--timeout={SECONDS:.0f}s")
    yield plugin
    plugin.kubectl("delete", "-k", folder, "--ignore-not-found", "--wait=false")
