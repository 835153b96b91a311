"""Whether NVIDIA's device plugin starts with the configuration that advice prints: read by the plugin's own package."""

import copy
import json

import pytest
import yaml

from tests.cluster.conftest import without
from tests.cluster.device_plugin import Unread, understood
from tests.gobuild import NoBinaries
from tests.rightsizing.findings.advised import applied, shared

# Slow, as the reader is built first: 70 s of CPU. tests/rightsizing/test_apply.py holds what the files say.
pytestmark = [pytest.mark.cluster, pytest.mark.slow]

STRATEGIES = {"time_slicing": ("timeSlicing", "time-slicing"), "mps": ("mps", "mps")}


@pytest.fixture
def read(tmp_path):
    """Reads a configuration as the plugin does, from the text of its file."""

    def read(text):
        file = tmp_path / "config.yaml"
        file.write_text(text)
        try:
            return understood(file)
        except NoBinaries as none:
            without(str(none))

    return read


def config(strategy, replicas=4):
    found, _ = applied(shared(strategy, replicas)).apply
    return found.manifest


def is_in(part, whole):
    """Whether all of `part` came back: what the reader does not know it leaves out."""
    if isinstance(part, dict):
        return isinstance(whole, dict) and all(key in whole and is_in(part[key], whole[key]) for key in part)
    if isinstance(part, list):
        return len(part) == len(whole) and all(map(is_in, part, whole))
    return part == whole


@pytest.mark.parametrize("replicas", [2, 8])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_plugin_understands_all_of_it(read, strategy, replicas):
    file = config(strategy, replicas)
    key, name = STRATEGIES[strategy]
    for text in (json.dumps(file), yaml.safe_dump(file)):
        answer = read(text)
        assert answer["strategy"] == name
        assert is_in(file, answer["config"])
        (resource,) = answer["config"]["sharing"][key]["resources"]
        assert resource == {"name": "nvidia.com/gpu", "rename": "nvidia.com/gpu.shared", "devices": "all"} | {
            "replicas": replicas
        }


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_configuration_of_the_configmap_is_one(read, strategy):
    """As the plugin's config-manager gives them to it: the value of a key, as a file."""
    found, _ = applied(shared(strategy)).apply
    made = json.loads(found.command.split("<<'EOF'\n")[1].split("\nEOF")[0])
    strategies = {name: read(text)["strategy"] for name, text in made["data"].items()}
    assert strategies.pop("default") == "none"
    assert list(strategies.values()) == [STRATEGIES[strategy][1]]


def test_what_the_pod_asks_for_is_what_the_plugin_offers(read):
    found, pod = applied(shared("time_slicing")).apply
    (offered,) = read(json.dumps(found.manifest))["config"]["sharing"]["timeSlicing"]["resources"]
    (container,) = pod.manifest["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"][offered["rename"]] == "1"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"version": "v2"}, "unknown version: v2"),
        ({"sharing": {"mps": {"resources": []}}}, "no resources specified"),
        ({"sharing": {"mps": {"resources": [{"name": "nvidia.com/gpu", "replicas": 1}]}}}, "replicas must be >= 2"),
        ({"sharing": {"mps": {"resources": [{"name": "nvidia.com/gpu"}]}}}, "no replicas specified"),
        ({"sharing": {"mps": {"resources": [{"replicas": 2}]}}}, "no resource name specified"),
        ({"sharing": {"mps": {"renameByDefault": "yes", "resources": []}}}, "cannot unmarshal"),
    ],
)
def test_the_reader_refuses_what_the_plugin_refuses(read, change, words):
    with pytest.raises(Unread, match=words):
        read(json.dumps({**config("mps"), **change}))


@pytest.mark.parametrize("wrong", ["renameByDefaults", "rename_by_default"])
def test_a_key_that_the_plugin_does_not_know_does_not_come_back(read, wrong):
    file = copy.deepcopy(config("mps"))
    shares = file["sharing"]["mps"]
    shares[wrong] = shares.pop("renameByDefault")
    assert not is_in(file, read(json.dumps(file))["config"])
