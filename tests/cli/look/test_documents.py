"""JSON and YAML for scripts: every member there, null for unknown, base units, times in UTC, a schema that holds."""

import json
from datetime import datetime

import msgspec
import pytest

from gpuwatch.cli.look.get import RESOURCES
from gpuwatch.health.causes import with_causes
from tests import fast_yaml
from tests.cli.commands import ask, run
from tests.cli.recommend import advice
from tests.model import views

COMMANDS = (
    *(("get", name) for name in RESOURCES),
    ("status",),
    ("describe", "gpu", "1"),
    ("events",),
    ("xid", "list"),
    ("tune", "status"),
    ("tune", "plan"),
    ("recommend",),
)


def document(*args: str, view=views.failing):
    found = ask(view(), *args, "-o", "json", events=views.some_events(), advice=advice.everything())
    return json.loads(found.stdout)


def conforms(value, schema, definitions) -> bool:
    """A small validator of what our schemas use; what it does not know it refuses."""
    if "$ref" in schema:
        return conforms(value, definitions[schema["$ref"].rpartition("/")[2]], definitions)
    if "anyOf" in schema:
        return any(conforms(value, option, definitions) for option in schema["anyOf"])
    if "const" in schema:
        return value == schema["const"]
    if "enum" in schema:
        return value in schema["enum"]
    kinds = {"null": type(None), "string": str, "integer": int, "number": (int, float), "boolean": bool}
    kind = schema.get("type")
    if kind == "array":
        return isinstance(value, list) and all(conforms(v, schema.get("items", {}), definitions) for v in value)
    if kind == "object":
        members = schema.get("properties", {})
        rest = schema.get("additionalProperties", True)
        named = isinstance(value, dict) and set(schema.get("required", ())) <= set(value)
        return named and all(
            conforms(v, members[k], definitions) if k in members else rest is True or conforms(v, rest, definitions)
            for k, v in value.items()
        )
    if kind in kinds:
        return isinstance(value, kinds[kind]) and (kind == "boolean" or not isinstance(value, bool))
    return not schema


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_document_says_what_it_is(command):
    found = document(*command)
    assert found["apiVersion"] == "gpuwatch/v1"
    assert found["kind"]
    assert isinstance(found["items"], list)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_document_conforms_to_its_own_schema(command):
    result = run(*command, "-o", "schema")
    schema = json.loads(result.stdout)
    assert conforms(document(*command), schema, schema["$defs"])


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_document_has_no_member_that_the_schema_does_not_name(command):
    schema = json.loads(run(*command, "-o", "schema").stdout)
    top = document(*command)
    assert set(top) == set(schema["properties"])
    item = schema["properties"]["items"]["items"]
    named = schema["$defs"][item["$ref"].rpartition("/")[2]]["properties"]
    assert all(set(entry) == set(named) for entry in top["items"])


def test_yaml_is_the_same_document():
    as_yaml = fast_yaml.load(ask(views.failing(), "get", "gpus", "-o", "yaml").stdout)
    assert as_yaml == document("get", "gpus")


def test_what_is_unknown_is_null_and_there():
    gpus = {gpu["index"]: gpu for gpu in document("get", "gpus")["items"]}
    assert gpus[0]["utilization"]["encoder"] is None
    assert gpus[0]["row_remap"]["pending"] is False
    assert gpus[2]["memory"] == {"total": None, "used": None, "free": None, "reserved": None}


def test_numbers_are_in_base_units():
    gpu = document("get", "gpus", view=views.healthy)["items"][0]
    assert gpu["memory"]["total"] == 80 * (1 << 30)
    assert gpu["clocks"]["sm"] == 1.98e9
    assert gpu["utilization"]["gpu"] == 0.98


def test_times_are_rfc_3339_in_utc():
    found = document("status")
    assert found["at"].endswith("Z")
    assert datetime.fromisoformat(found["at"]).timestamp() == views.AT
    assert datetime.fromisoformat(found["findings"][0]["since"]).timestamp() == views.AT - 240


def test_names_can_be_piped():
    assert ask(views.failing(), "get", "gpus", "-o", "name").stdout.split() == [
        f"gpu/{views.uuid(i)}" for i in range(3)
    ]
    assert ask(views.healthy(), "get", "xids", "-o", "name").stdout == ""


def test_a_pod_that_holds_a_lost_gpu_is_still_listed():
    pods = {pod["pod"]: pod for pod in document("get", "pods")["items"]}
    assert pods["llama-3-pretrain-worker-0-7b9c5d"]["gpu"] == 2
    assert pods["llama-3-pretrain-worker-0-7b9c5d"]["processes"] == 0


def test_an_xid_nobody_documented_is_listed_with_nulls():
    last = document("get", "xids")["items"][-1]
    assert (last["xid"], last["gpu"], last["pci_bus_id"], last["mnemonic"]) == (9999, None, "0000:99:00", None)


def test_status_names_the_checks_that_are_ignored():
    def ignoring():
        view = views.healthy()
        return msgspec.structs.replace(
            view, judgement=msgspec.structs.replace(view.judgement, ignored=("mig_pending",))
        )

    assert document("status", view=ignoring)["ignored"] == ["mig_pending"]
    assert "ignored by checks.ignore: mig_pending" in ask(ignoring(), "status").stdout
    assert "ignored" not in ask(views.healthy(), "status").stdout


def folded():
    """A lost GPU with two XIDs that follow from its loss."""
    view = views.failing()
    lost = next(each for each in view.judgement.findings if each.check == "gpu_lost")
    xids = [msgspec.structs.replace(lost, check="xid_fatal", xid=xid, message=f"XID {xid}") for xid in (79, 154)]
    findings = with_causes([*view.judgement.findings, *xids])
    return msgspec.structs.replace(view, judgement=msgspec.structs.replace(view.judgement, findings=findings))


@pytest.mark.parametrize("command", [("status",), ("describe", "gpu", "2")])
def test_what_follows_from_a_fault_is_one_line_below_it(command):
    screen = " ".join(ask(folded(), *command).stdout.split())
    assert screen.count("xid_fatal") == 1
    assert "2 more follow from it: xid_fatal 79, 154 (the driver has lost it)" in screen


def test_top_shows_how_many_follow_from_a_fault():
    assert "gpu_lost (+2 that follow)" in ask(folded(), "top", "--once").stdout


def test_a_document_keeps_all_findings_with_their_cause():
    found = document("get", "findings", view=folded)["items"]
    (lost,) = (each for each in found if each["check"] == "gpu_lost")
    assert lost["caused_by"] is None
    assert [each["caused_by"] for each in found if each["check"] == "xid_fatal"] == [lost["key"]] * 2
