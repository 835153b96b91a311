"""What an account may do on a real API server: as it lists that, and as it answers when asked about every verb."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.cluster.api import Answer, Api
from tests.remediation.model.remediating import NAMESPACE
from tests.waiting import until

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
UNLISTED = (("", "users", "impersonate"), ("", "groups", "impersonate"), ("", "serviceaccounts", "impersonate"))
ESCALATING = tuple(("rbac.authorization.k8s.io", "clusterroles", verb) for verb in ("escalate", "bind"))
"""Verbs that no resource tells of."""

Right = tuple[str, str, str]
"""Namespace, empty for the whole cluster; resource, with its group; verb."""


def listed(api: Api, token: str, namespace: str = NAMESPACE) -> set[Right]:
    """What a SelfSubjectRulesReview tells the owner of a token. Not: to ask about itself, as all may."""
    everywhere, here = (_rules(api, token, place) for place in ("default", namespace))
    return {("", *each) for each in everywhere} | {(namespace, *each) for each in here - everywhere}


def _rules(api: Api, token: str, namespace: str) -> set[tuple[str, str]]:
    review = {"spec": {"namespace": namespace}}
    status, body = api.request("POST", f"{AUTHORIZATION}/selfsubjectrulesreviews", review, token=token)
    assert status == 201, body
    assert not body["status"]["incomplete"], body
    return {
        (full_name(group, resource), verb)
        for rule in body["status"]["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
        if "selfsubject" not in resource
    }


def asked(api: Api, user: str, namespace: str = NAMESPACE) -> set[Right]:
    """The same by a SubjectAccessReview for each verb on each resource that the server serves: some 1,500 questions."""
    found = set()
    for group, resource, verb in sorted({*served(api), *UNLISTED, *ESCALATING}):
        if "selfsubject" not in resource:
            places = (place for place in ("", namespace) if _may(api, user, verb, group, resource, place))
            found |= {(place, full_name(group, resource), verb) for place in list(places)[:1]}
    return found


def served(api: Api) -> Iterator[tuple[str, str, str]]:
    """Group, resource and verb."""
    for (group, resource), (_, verbs) in _resources(api).items():
        yield from ((group, resource, verb) for verb in verbs)


def _resources(api: Api) -> dict[tuple[str, str], tuple[str, tuple[str, ...]]]:
    """(group, resource) -> its path without its name, its verbs: in the preferred version, or in one that has it."""
    paths = [("", "/api/v1")]
    for group in api.request("GET", "/apis").body["groups"]:
        versions = sorted(group["versions"], key=lambda each: each != group["preferredVersion"])
        paths += [(group["name"], f"/apis/{each['groupVersion']}") for each in versions]
    found: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {}
    for name, path in paths:
        for resource in api.request("GET", path).body["resources"]:
            found.setdefault((name, resource["name"]), (path, tuple(resource["verbs"])))
    return found


def objects(api: Api) -> set[Right]:
    """Every object there is: its namespace, its resource, its name."""
    found = set()
    for (_, resource), (path, verbs) in _resources(api).items():
        if "list" in verbs and resource not in ("events", "componentstatuses"):
            items = _items(api, f"{path}/{resource}")
            found |= {(each["metadata"].get("namespace", ""), resource, each["metadata"]["name"]) for each in items}
    return found


def _items(api: Api, path: str) -> list[dict[str, Any]]:
    """A list; a kind that has only just been made known is not served at once."""
    answer: Answer = until(lambda: (got := api.request("GET", path)).status == 200 and got, path)
    found: list[dict[str, Any]] = answer.body["items"]
    return found


def full_name(group: str, resource: str) -> str:
    """As kubectl says it."""
    return f"{resource}.{group}" if group else resource


def table(found: Mapping[str, set[Right]]) -> str:
    """For people."""
    rows = [
        f"{account:22} {verb:8} {resource:34} {place or 'the whole cluster'}"
        for account, told in found.items()
        for place, resource, verb in sorted(told)
    ]
    return "\n".join([*rows, *(f"{account:22} nothing" for account, told in found.items() if not told)])


def _may(api: Api, user: str, verb: str, group: str, resource: str, namespace: str) -> bool:
    what, _, inner = resource.partition("/")
    attributes = {"verb": verb, "group": group, "resource": what, "subresource": inner, "namespace": namespace}
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}", "system:authenticated"]
    review = {"spec": {"user": user, "groups": groups, "resourceAttributes": attributes}}
    status, body = api.request("POST", f"{AUTHORIZATION}/subjectaccessreviews", review)
    assert status == 201, body
    return bool(body["status"]["allowed"])
