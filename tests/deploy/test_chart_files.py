"""What the chart says again is what its source says; what can be set is described, and nothing else can be set."""

import json

import pytest

import gpuwatch
from deploy.helm.generate import CHART, COPIES, REPOSITORY, copies, generated
from deploy.helm.values import FILE, documented
from tests import fast_yaml
from tests.cli.processes import finish
from tests.deploy.charts import run

VALUES = list(documented(FILE.read_text()))
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
CONFIGURATION = "Config"


def inside(schema, path=()):
    """Every schema of a value below this one, with its path."""
    for key, value in schema.get("properties", {}).items():
        yield (*path, key), value
        yield from inside(value, (*path, key))


def test_generated_files_are_up_to_date():
    stale = [path for path, text in generated() if not path.is_file() or path.read_text() != text]
    assert stale == [], "run: make generate"


def test_copies_are_all_there_and_nothing_else():
    kept = {path for path in (CHART / "files").rglob("*") if path.is_file()}
    assert kept == {path for path, _ in copies()}, "run: make generate"


@pytest.mark.parametrize("source", COPIES)
def test_a_copy_has_a_source(source):
    assert list(REPOSITORY.glob(source)), f"{source} is no more: change COPIES in deploy/helm/generate.py"


def test_versions_are_gpuwatch_s():
    chart = fast_yaml.load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (gpuwatch.__version__,) * 2


def test_every_value_is_described():
    """By the comment in values.yaml; the schema would refuse a key there that has none. Two are of a parent chart."""
    described = {".".join(path) for path, schema in inside(SCHEMA) if schema.get("description")}
    assert described == {each.name for each in VALUES} | {"global", "enabled"}


def closed(schema):
    """Every object of a schema names what it takes: keys, or the type of what any key has."""
    if isinstance(schema, list):
        return all(map(closed, schema))
    if not isinstance(schema, dict):
        return True
    if "properties" in schema and "required" not in schema and schema.get("additionalProperties", True) is True:
        return False
    return all(map(closed, schema.values()))


def test_no_object_takes_keys_that_it_does_not_name():
    assert closed({**SCHEMA["properties"], **SCHEMA["$defs"]})
    assert SCHEMA["additionalProperties"] is False
    groups = [schema for _, schema in inside(SCHEMA) if "properties" in schema]
    assert groups
    assert all(schema["additionalProperties"] is False for schema in groups)


def test_the_configuration_is_checked_by_its_own_schema():
    printed = json.loads(finish("config", "schema").stdout)
    assert SCHEMA["properties"]["config"]["$ref"] == printed["$ref"] == f"#/$defs/{CONFIGURATION}"
    assert printed["$defs"].items() <= SCHEMA["$defs"].items()


def test_helm_finds_nothing_to_complain_about():
    said = run("lint", "--strict", CHART)
    assert said.code == 0, said.out + said.error
    assert "0 chart(s) failed" in said.out
