"""A tuner that acts, as installed: who may do what, how consents reach it, and that whatever ends it gives back."""

from pathlib import Path

import pytest

from gpuwatch.consents.file import ConsentsFile
from gpuwatch.tuning.actuation.guard import EXIT_WAIT_SECONDS
from gpuwatch.tuning.actuation.record import SettingsRecord
from gpuwatch.tuning.actuation.restore import ANSWER_SECONDS
from tests.deploy.charts import case, rendered
from tests.deploy.commandline import commands
from tests.deploy.privileges import privileges
from tests.deploy.rendering import built, kustomization, one, pod

RIGHTS = "gpuwatch-tuner-consents"
STATE = Path("/var/lib/gpuwatch")
COMMAND_SECONDS = 5
"""For a Python program to start and to end, on a busy node."""

ALONE = ("tuner", "consents", "tuner-enforce")
WITH_REMEDIATION = ("remediation", *ALONE)
WAYS = [("kustomize", ALONE), ("kustomize", WITH_REMEDIATION), ("helm", ALONE), ("helm", WITH_REMEDIATION)]
VALUES = {ALONE: {"tuner": {"mode": "enforce"}}, WITH_REMEDIATION: {**case("observe"), "tuner": {"mode": "enforce"}}}


@pytest.fixture(params=WAYS, ids=lambda way: f"{way[0]}-{len(way[1])}")
def installed(request, tmp_path):
    """What either way makes of it, without and with a remediator beside it."""
    way, chosen = request.param
    return rendered(VALUES[chosen]) if way == "helm" else built(kustomization(tmp_path, *chosen))


def container(installed, name):
    (found,) = (each for each in pod(installed)["spec"]["containers"] if each["name"] == name)
    return found


def mounts(installed, name):
    return {each["mountPath"]: each for each in container(installed, name)["volumeMounts"]}


def variables(installed, name):
    return {each["name"]: each.get("value") for each in container(installed, name)["env"]}


def test_it_acts_and_its_agent_polls_each_second(installed):
    assert variables(installed, "tuner")["GPUWATCH_TUNER_MODE"] == "enforce"
    assert float(variables(installed, "agent")["GPUWATCH_AGENT_INTERVAL"]) <= 1


def test_who_has_the_token_touches_nothing_of_the_host(installed):
    assert privileges(pod(installed))["consents"] == {"root", "API token"}


@pytest.mark.parametrize("reader", ["tuner", "agent"])
def test_a_reader_of_the_consents_has_them_where_they_are_written_and_cannot_write_there(installed, reader):
    place = str(ConsentsFile(STATE).path.parent)
    written, read = (mounts(installed, name)[place] for name in ("consents", reader))
    assert written["name"] == read["name"]
    assert (written.get("readOnly"), read.get("readOnly")) == (None, True)
    (volume,) = (each for each in pod(installed)["spec"]["volumes"] if each["name"] == written["name"])
    assert set(volume) == {"name", "emptyDir"}
    assert str(STATE) not in mounts(installed, "consents")


def test_only_tuner_and_guard_may_write_the_record_of_settings(installed):
    """Whoever writes it chooses what the guard sets; an agent or remediator that was taken over cannot."""
    record = SettingsRecord(STATE).path
    for each in pod(installed)["spec"]["containers"]:
        found = mounts(installed, each["name"])
        place = next((str(parent) for parent in record.parents if str(parent) in found), None)
        writable = place is not None and not found[place].get("readOnly")
        assert writable == (each["name"] in ("tuner", "guard")), each["name"]


def test_the_right_to_read_is_that_of_the_pods_account_and_is_only_to_read(installed):
    binding = one(installed, "ClusterRoleBinding", RIGHTS)
    account = pod(installed)["spec"]["serviceAccountName"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": "gpuwatch"}]
    assert account in {each["metadata"]["name"] for each in installed if each["kind"] == "ServiceAccount"}
    verbs = {verb for rule in one(installed, "ClusterRole", RIGHTS)["rules"] for verb in rule["verbs"]}
    assert verbs == {"get", "list"}


def test_a_foreign_account_gets_the_right():
    values = {**case("names"), "tuner": {"mode": "enforce"}}
    subjects = one(rendered(values), "ClusterRoleBinding", "gpus-tuner-consents")["subjects"]
    assert [subject["name"] for subject in subjects] == ["of-ours"]


def test_s14_deleting_the_pod_restores_the_settings_on_its_own_node(installed):
    """helm uninstall, kubectl delete -k and an upgrade all end pods; no Job could act for every node."""
    hook = container(installed, "guard")["lifecycle"]["preStop"]["exec"]["command"]
    program, *words = hook
    name, option = words[-2:]
    _, tune = commands(words)
    restore = tune.command.get_command(tune, name)
    assert (program, tune.info_name, name) == ("gpuwatch", "tune", "restore")
    assert restore.make_context(name, [option], parent=tune).params["everything"] is True
    assert {"GPUs", "capability SYS_ADMIN", f"writes {STATE}"} <= privileges(pod(installed))["guard"]


def test_s14_the_signal_reaches_tuner_and_guard_themselves(installed):
    """The image's entry point is the program: a shell in between would keep SIGTERM to itself."""
    for name in ("tuner", "guard"):
        assert "command" not in container(installed, name)
        assert container(installed, name)["args"][0].startswith("--config=")


def test_s14_there_is_time_for_all_of_that(installed):
    needed = COMMAND_SECONDS + ANSWER_SECONDS + EXIT_WAIT_SECONDS + ANSWER_SECONDS
    assert pod(installed)["spec"]["terminationGracePeriodSeconds"] > needed


def test_tuner_and_guard_meet_at_one_record(installed):
    found = [mounts(installed, name)[str(STATE)] for name in ("tuner", "guard")]
    assert found[0] == found[1]
    (volume,) = (each for each in pod(installed)["spec"]["volumes"] if each["name"] == found[0]["name"])
    assert volume["hostPath"]["path"] == str(STATE), "else a new pod would not know what the old one has set"


def test_who_observes_cannot_reach_a_gpu(tmp_path):
    found = privileges(pod(built(kustomization(tmp_path, "tuner"))))
    assert found["tuner"] == {"root", f"writes {STATE}"}
    assert "consents" not in found
