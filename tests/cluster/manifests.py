"""The committed manifests of the remediator: read, applied to an API server, and taken apart."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gpuwatch
from tests import fast_yaml
from tests.cluster.api import Api
from tests.remediation.model.remediating import NAMESPACE

FOLDER = Path(gpuwatch.__file__).parents[1] / "deploy/components"
OBSERVE, ENFORCE, DRAIN = "remediation", "remediation-enforce", "remediation-drain"
DEVICES, CONSENTS = "remediation-devices", "consents"
ACCOUNT = "gpuwatch-remediator"
POLICY = "ValidatingAdmissionPolicy"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
PATHS = {
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{RBAC}/namespaces/{{namespace}}/roles",
    "RoleBinding": f"{RBAC}/namespaces/{{namespace}}/rolebindings",
    POLICY: f"{ADMISSION}/validatingadmissionpolicies",
    f"{POLICY}Binding": f"{ADMISSION}/validatingadmissionpolicybindings",
}
Manifest = dict[str, Any]


class Right(NamedTuple):
    """One verb on one resource. `namespace` empty: in the whole cluster."""

    verb: str
    resource: str
    group: str = ""
    namespace: str = ""


def manifests(*components: str) -> list[Manifest]:
    """Rights and policies of some components, by default of all; policies, then bindings, are last."""
    files = [file for name in components or (OBSERVE, ENFORCE, DRAIN) for file in (FOLDER / name).glob("*.yaml")]
    found = [each for file in files for each in fast_yaml.load_all(file.read_text()) if each["kind"] in PATHS]
    return sorted(found, key=lambda each: list(PATHS).index(each["kind"]))


def renamed(found: list[Manifest], account: str) -> list[Manifest]:
    """The same for another service account, so that several stand side by side."""
    text = json.dumps(found).replace(ACCOUNT, account).replace('"gpuwatch-own', f'"{account}-own')
    renamed: list[Manifest] = json.loads(text)
    return renamed


def without(found: list[Manifest], policy: str, message: str) -> list[Manifest]:
    """The same, but one rule of one policy lets everything pass: a policy without a rule is refused."""
    copy: list[Manifest] = json.loads(json.dumps(found))
    (spec,) = (each["spec"] for each in copy if each["kind"] == POLICY and each["metadata"]["name"] == policy)
    (rule,) = (each for each in spec["validations"] if each["message"] == message)
    rule["expression"] = "true"
    return copy


def with_variable(found: list[Manifest], name: str, expression: str) -> list[Manifest]:
    """The same, but for what a variable is."""
    copy: list[Manifest] = json.loads(json.dumps(found))
    policies = (each["spec"] for each in copy if each["kind"] == POLICY)
    (variable,) = (each for spec in policies for each in spec.get("variables", ()) if each["name"] == name)
    variable["expression"] = expression
    return copy


def rules(found: list[Manifest]) -> list[tuple[str, str]]:
    """Every rule of every policy: the policy's name and what the rule says when it refuses."""
    policies = (each for each in found if each["kind"] == POLICY)
    return [(each["metadata"]["name"], rule["message"]) for each in policies for rule in each["spec"]["validations"]]


def apply(api: Api, manifest: Manifest) -> None:
    """Create it; a field that the API server does not know is an error."""
    path = PATHS[manifest["kind"]].format(namespace=manifest["metadata"].get("namespace"))
    status, answer = api.request("POST", f"{path}?fieldValidation=Strict", manifest)
    assert status == 201, answer


def rights(found: list[Manifest], account: str = ACCOUNT) -> set[Right]:
    """What the service account may do, by way of the bindings."""
    return {right for each in found if each["kind"].endswith("RoleBinding") for right in _bound(each, found, account)}


def _bound(binding: Manifest, found: list[Manifest], account: str) -> Iterator[Right]:
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}]
    space, ref = binding["metadata"].get("namespace", ""), binding["roleRef"]
    (role,) = (
        each
        for each in found
        if (each["kind"], each["metadata"]["name"]) == (ref["kind"], ref["name"])
        and each["metadata"].get("namespace", "") == space
    )
    for rule in role["rules"]:
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                yield from (Right(verb, resource, group, space) for verb in rule["verbs"])
