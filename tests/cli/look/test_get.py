"""`gpuwatch get` takes kubectl's habits: singular and short names, -n and -A, --sort-by."""

import json
import re

import pytest
from msgspec.structs import replace

from gpuwatch.cli.look.get import RESOURCES
from gpuwatch.model.view import PodEnergy
from gpuwatch.model.workload import Attribution, Container
from tests.cli.commands import ask
from tests.model import views


@pytest.mark.parametrize("name", RESOURCES)
def test_each_resource_has_its_singular(name: str):
    for also in RESOURCES[name].also:
        same = (ask(views.failing(), "get", each, "-o", "json").stdout for each in (also, name, also.upper()))
        assert len(set(same)) == 1
    assert name == "mig" or RESOURCES[name].also


def test_an_unknown_resource_is_reported_with_the_nearest():
    shown = ask(views.healthy(), "get", "pdos")
    assert shown.exit_code == 2
    assert "unknown resource 'pdos'; did you mean pods?" in shown.stderr


def test_pods_of_one_namespace_and_of_all():
    every = json.loads(ask(views.healthy(), "get", "pods", "-A", "-o", "json").stdout)["items"]
    chosen = every[0]["namespace"]
    some = json.loads(ask(views.healthy(), "get", "pods", "-n", chosen, "-o", "json").stdout)["items"]
    assert some == [each for each in every if each["namespace"] == chosen]
    assert len(some) < len(every)
    shown = ask(views.healthy(), "get", "gpus", "-n", chosen)
    assert shown.exit_code == 2
    assert "GPUs have no namespace" in shown.stderr


def test_a_container_outside_pods_goes_by_its_name():
    view = views.bare()
    known = Container("lab-train-1", "ghcr.io/example/train:1.2", "lab", "train")
    owners = tuple(replace(owner, container=known) if owner.user == "ben" else owner for owner in view.owners)
    view = replace(view, owners=owners)
    items = json.loads(ask(view, "get", "processes", "-o", "json").stdout)["items"]
    assert {item["pid"]: item["container"] for item in items} == {
        10: None,
        11: {"name": "lab-train-1", "image": "ghcr.io/example/train:1.2", "project": "lab", "service": "train"},
        12: None,
    }
    (row,) = (line for line in ask(view, "get", "processes", "-o", "wide").stdout.splitlines() if "ghcr.io" in line)
    assert "container lab-train-1" in row
    assert "container lab-train-1 +1" in ask(view, "status").stdout
    assert re.search("Used by +container lab-train-1", ask(view, "describe", "gpu", "1").stdout)
    gpus = {item["uuid"] for item in json.loads(ask(view, "why", "lab-train-1", "-o", "json").stdout)["items"]}
    assert gpus <= {views.uuid(1)}
    assert ask(view, "why", "lab-train-2").exit_code == 2


def test_the_largest_number_comes_first_and_what_is_unknown_last():
    items = json.loads(ask(views.failing(), "get", "gpus", "--sort-by", "power.average", "-o", "json").stdout)["items"]
    watts = [each["power"]["average"] for each in items]
    known = [each for each in watts if each is not None]
    assert known == sorted(known, reverse=True)
    assert watts[len(known) :] == [None] * (len(watts) - len(known))
    assert None in watts


@pytest.mark.parametrize(
    ("path", "says"),
    [("power.x", "there is no 'x'; it has average"), ("index.a", "there is no 'a'; that member has no parts")],
)
def test_a_member_that_is_not_there_is_reported_with_those_that_are(path: str, says: str):
    shown = ask(views.healthy(), "get", "gpus", "--sort-by", path)
    assert shown.exit_code == 2
    assert says in shown.stderr


def test_a_column_of_energy_has_one_unit():
    shown = ask(views.healthy(), "get", "pods").stdout
    cells = [line.rsplit(maxsplit=1)[-1] for line in shown.splitlines()[1:]]
    assert set(cells) <= {"Wh", "–"}
    assert "Wh" in cells


def test_a_pod_on_two_instances_has_the_energy_of_each_beside_it():
    view = views.mig()
    (use,), (holder,) = view.attribution.usage, view.attribution.devices[0].holders
    both = (use, replace(use, gi=2))
    spent = ((1, "activity", 3600.0), (1, "size", 3600.0), (2, "size", 1800.0))
    energy = tuple(PodEnergy(gpu=use.gpu, gi=gi, method=how, workload=use.workload, joules=j) for gi, how, j in spent)
    devices = tuple(replace(device, holders=(holder,)) for device in view.attribution.devices)
    shown = replace(view, attribution=Attribution(devices=devices, usage=both), pod_energy=energy)
    items = json.loads(ask(shown, "get", "pods", "-o", "json").stdout)["items"]
    assert {each["gi"]: each["energy"] for each in items} == {1: 7200.0, 2: 1800.0}
