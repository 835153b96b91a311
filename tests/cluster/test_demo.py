"""The containers of the overlay `demo`, run as processes as its manifests say, with the account that it installs."""

import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cli.processes import finish
from tests.cluster.api import NODES
from tests.cluster.manifests import ACCOUNT
from tests.cluster.remediating import make_node
from tests.cluster.story import OWN_PODS, pod_on
from tests.deploy.rendering import built, containers, one
from tests.e2e.processes import fetch, running
from tests.ports import free_port
from tests.remediation.model.remediating import NAMESPACE
from tests.waiting import until

# Its manifests are held by tests/deploy, what an observing remediator does by tests/cluster/test_remediator_rights.py
# and tests/remediation/service.
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

NODE = "demo-node"
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
LISTEN = {"agent": "GPUWATCH_AGENT_LISTEN", "remediator": "GPUWATCH_REMEDIATOR_LISTEN"}


@pytest.fixture
def demo(fresh, install, tmp_path):
    """URL of each container, and the folder that stands for the pod's volumes."""
    found = built(install("demo"))
    (tmp_path / "gpuwatch.yaml").write_text(one(found, "ConfigMap")["data"]["gpuwatch.yaml"])
    make_node(fresh.api, NODE, BOOT_ID.read_text().strip())
    own = pod_on(fresh.api, OWN_PODS, "gpuwatch-demo", NODE, serviceAccountName=ACCOUNT)
    token = fresh.plane.service_account_token(NAMESPACE, ACCOUNT, own)
    volumes = {
        "GPUWATCH_AGENT_SOCKET": str(tmp_path / "agent.sock"),
        "GPUWATCH_AGENT_SIM_DIR": str(tmp_path / "sim"),
        "GPUWATCH_STATE_DIR": str(tmp_path / "state"),
        "GPUWATCH_KUBECONFIG": str(fresh.plane.token_kubeconfig(token)),
    }
    downward = {"NODE_NAME": NODE, "POD_NAME": "gpuwatch-demo", "POD_NAMESPACE": NAMESPACE}
    urls = {}
    with ExitStack() as stack:
        for container in containers(found):
            name, address = container["name"], f"127.0.0.1:{free_port()}"
            said = {each["name"]: each.get("value", downward.get(each["name"])) for each in container["env"]}
            args = [each.replace("/etc/gpuwatch", str(tmp_path)) for each in container["args"]]
            command = [sys.executable, "-m", "gpuwatch", *args]
            env = {**said, **volumes, LISTEN[name]: address}
            stack.enter_context(running(command, tmp_path / f"{name}.log", env))
            urls[name] = f"http://{address}"
        yield urls, tmp_path
    for path in (f"{NODES}/{NODE}", f"{OWN_PODS}/gpuwatch-demo?gracePeriodSeconds=0"):
        fresh.api.request("DELETE", path)


def test_the_demo_judges_and_plans_but_leaves_the_node_alone(fresh, demo):
    urls, place = demo
    for name, url in urls.items():
        until(lambda url=url: fetch(f"{url}/-/ready"), f"{name} is ready")
    before = fresh.api.request("GET", f"{NODES}/{NODE}").body
    broken = finish("sim", "inject", "lose", "gpu=3", "--dir", str(place / "sim"))
    assert broken.returncode == 0, broken.stderr
    page = f"{urls['remediator']}/metrics"
    until(lambda: b'gpuwatch_remediator_actions_total{action="taint",result="observed"} 1' in fetch(page), page)
    assert fresh.api.request("GET", f"{NODES}/{NODE}").body == before
    assert finish("--source", f"agent:{place / 'agent.sock'}", "status").returncode == 4
