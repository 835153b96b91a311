"""Whether mig-parted reads the layouts that advice prints, of every GPU model that can be cut."""

import copy
import json
from pathlib import Path

import jsonschema
import pytest

from gpuwatch.rightsizing.model.mig_profiles import table
from gpuwatch.rightsizing.model.usage import FleetFacts, GpuFacts
from tests.rightsizing.findings.advised import A100, H100, applied, cut, layout

SCHEMA = json.loads(Path(__file__).with_name("mig_parted.schema.json").read_text())
CUTS = [(gpu, profile) for gpu in table().gpus for profile in gpu.profiles]


def complaint(file):
    found = jsonschema.Draft202012Validator(SCHEMA).iter_errors(file)
    return "; ".join(f"{error.json_path}: {error.message}" for error in found)


def files(*layouts, fleet=None):
    """The bare file, and that in the Operator's ConfigMap."""
    operator, by_hand = applied(cut(*layouts), fleet).apply
    return [by_hand.manifest, json.loads(operator.manifest["data"]["config.yaml"])]


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize(("gpu", "profile"), CUTS, ids=lambda each: each.name)
def test_every_profile_of_every_model_is_read(gpu, profile):
    name = f"NVIDIA {gpu.names[0].replace('*', '')}"
    alone = layout("gpu-1", 0, *[profile.name] * profile.max_instances, model=name)
    mixed = FleetFacts(gpus=(GpuFacts(node="gpu-1", uuid="GPU-9", model="Tesla T4"),))
    for file in [*files(alone), *files(alone, fleet=mixed)]:
        assert complaint(file) == ""
        (spec,) = next(specs for name, specs in file["mig-configs"].items() if name != "all-disabled")
        assert spec["mig-devices"] == {profile.name: profile.max_instances}


def test_every_gpu_is_in_one_entry_of_its_node():
    """mig-parted goes through all entries that match: the last one would win."""
    layouts = [layout("gpu-1", index, "3g.40gb", "3g.40gb" if index % 3 else "2g.20gb") for index in range(8)]
    for file in files(*layouts):
        (specs,) = (specs for name, specs in file["mig-configs"].items() if name != "all-disabled")
        indexes = [index for spec in specs for index in spec["devices"]]
        assert sorted(indexes) == list(range(8))


def test_a_gpu_that_is_to_be_whole_is_taken_out_of_mig_mode():
    for file in files(layout("gpu-1", 0), layout("gpu-1", 1, "3g.40gb")):
        assert complaint(file) == ""
        (specs,) = (specs for name, specs in file["mig-configs"].items() if name != "all-disabled")
        assert {spec["mig-enabled"]: spec["devices"] for spec in specs} == {False: [0], True: [1]}


def test_two_models_of_a_node_are_both_filtered():
    file, _ = files(layout("gpu-1", 0, "1g.10gb", model=A100), layout("gpu-1", 1, "1g.10gb", model=H100))
    (specs,) = file["mig-configs"].values()
    assert len(specs) == 2
    assert all(spec["device-filter"] for spec in specs)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("version",), "v2"),
        (("bogus",), "field"),
        (("mig-configs",), {}),
        (("mig-configs", "gpuwatch"), []),
        (("mig-configs", "-a label begins with a letter"), [{"devices": "all", "mig-enabled": False}]),
        (("mig-configs", "gpuwatch", 0, "bogus"), "field"),
        (("mig-configs", "gpuwatch", 0, "devices"), "some"),
        (("mig-configs", "gpuwatch", 0, "devices"), {}),
        (("mig-configs", "gpuwatch", 0, "devices"), [0.5]),
        (("mig-configs", "gpuwatch", 0, "devices"), ["GPU-0"]),
        (("mig-configs", "gpuwatch", 0, "mig-enabled"), "true"),
        (("mig-configs", "gpuwatch", 0, "mig-enabled"), False),
        (("mig-configs", "gpuwatch", 0, "mig-devices"), {"bogus": 2}),
        (("mig-configs", "gpuwatch", 0, "mig-devices"), {"mig-1g.10gb": 2}),
        (("mig-configs", "gpuwatch", 0, "mig-devices"), {"1g.10gb": 0}),
        (("mig-configs", "gpuwatch", 0, "mig-devices"), {"1g.10gb": "1"}),
        (("mig-configs", "gpuwatch", 0, "mig-devices"), None),
        (("mig-configs", "gpuwatch", 0, "device-filter"), ["A100"]),
    ],
)
def test_what_mig_parted_refuses_is_refused(place, value):
    """The cases of its own tests, and those that its types refuse."""
    good = {
        "version": "v1",
        "mig-configs": {"gpuwatch": [{"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 1}}]},
    }
    assert complaint(good) == ""
    wrong = copy.deepcopy(good)
    inside = wrong
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    assert complaint(wrong)


@pytest.mark.parametrize("missing", ["devices", "mig-enabled", "mig-devices"])
def test_what_mig_parted_misses_is_missed(missing):
    spec = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.10gb": 1}}
    del spec[missing]
    assert complaint({"version": "v1", "mig-configs": {"gpuwatch": [spec]}})


def test_a_file_without_a_version_is_refused():
    assert complaint({"mig-configs": {"gpuwatch": [{"devices": "all", "mig-enabled": False}]}})
