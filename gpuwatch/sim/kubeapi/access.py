"""Who asks, and whether they may: bearer tokens, rules given to a user by hand, and RBAC objects in the store."""

from collections.abc import Collection, Iterator, Mapping

import msgspec

from gpuwatch.sim.kubeapi.message import Object, Request
from gpuwatch.sim.kubeapi.resources import BY_PATH, Resource
from gpuwatch.sim.kubeapi.route import Call
from gpuwatch.sim.kubeapi.status import ApiError, details_of, unauthorized
from gpuwatch.sim.kubeapi.store import Key, Store

ANONYMOUS = "system:anonymous"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_PUBLIC = ("/healthz", "/livez", "/readyz", "/version")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """What is allowed; `*` stands for everything."""

    verbs: Collection[str]
    resources: Collection[str]
    """`nodes`, `nodes/status`, `pods/eviction`, ..."""
    groups: Collection[str] = ("*",)
    namespaces: Collection[str] = ("*",)
    """Empty string: cluster-scoped, or all namespaces at once."""
    names: Collection[str] = ("*",)
    """As with resourceNames, a rule that names objects does not allow to create or list."""

    def allows(self, call: Call) -> bool:
        """Whether the call is among what this rule allows."""
        asked = (
            (self.verbs, call.verb),
            (self.resources, call.target),
            (self.groups, call.resource.group),
            (self.namespaces, call.namespace),
            (self.names, call.name or None),
        )
        return all("*" in allowed or value in allowed for allowed, value in asked)


EVERYTHING = (Rule(verbs=("*",), resources=("*",)),)


class Access:
    """Users by token, and what each may do."""

    def __init__(self, store: Store, anonymous: str = ANONYMOUS) -> None:
        self._store, self._anonymous = store, anonymous
        self._tokens: dict[str, str] = {}
        self._rules: dict[str, tuple[Rule, ...]] = {}

    def add(self, user: str, rules: tuple[Rule, ...], token: str) -> None:
        """Let a user in with these rules; an old token of theirs stays good."""
        self._tokens[token] = user
        self._rules[user] = rules

    def token_of(self, user: str) -> str | None:
        """A token of this user, if there is one."""
        return next((token for token, owner in self._tokens.items() if owner == user), None)

    def user_of(self, headers: Mapping[str, str]) -> str:
        """Return who asks. Raises ApiError 401 for a token that nobody was given."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if not scheme:
            return self._anonymous
        user = self._tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise unauthorized()
        return user

    def allows(self, user: str, call: Call) -> bool:
        """Whether one of the user's rules allows it."""
        given = self._rules.get(user, ())
        return any(rule.allows(call) for rule in given) or any(rule.allows(call) for rule in self._bound(user, call))

    def check(self, user: str, call: Call) -> None:
        """Raise ApiError 403 unless the call is allowed."""
        if not self.allows(user, call):
            raise forbidden(call.resource, call.name, _refusal(user, call))

    def check_path(self, user: str, path: str) -> None:
        """Raise ApiError 403 for a path that is none of a resource, unless it is public or the user is known."""
        if user not in self._rules and not path.startswith(_PUBLIC):
            raise ApiError(403, "Forbidden", f'forbidden: User "{user}" cannot get path "{path}"', {})

    def review(self, user: str, review: Object) -> Object:
        """Answer a SelfSubjectAccessReview: may I?"""
        asked = review.get("spec", {}).get("resourceAttributes", {})
        resource = BY_PATH.get((asked.get("group", ""), asked.get("resource", "")))
        if resource is None:
            return {**review, "status": {"allowed": False, "reason": "no such resource is served"}}
        call = Call(
            verb=asked.get("verb", ""),
            resource=resource,
            subresource=asked.get("subresource", ""),
            namespace=asked.get("namespace", ""),
            name=asked.get("name", ""),
            request=Request(path=REVIEWS),
        )
        return {**review, "status": {"allowed": self.allows(user, call)}}

    def _bound(self, user: str, call: Call) -> Iterator[Rule]:
        """Rules of the roles that are bound to the user, cluster-wide or in the namespace of the call."""
        bindings = self._store.all("clusterrolebindings")
        if call.namespace:
            bindings += self._store.all("rolebindings", call.namespace)
        for binding in bindings:
            if not any(_is_subject(user, each) for each in binding.get("subjects", [])):
                continue
            reference = binding["roleRef"]
            namespace = call.namespace if reference["kind"] == "Role" else ""
            role = self._store.get(Key(f"{reference['kind'].lower()}s", namespace, reference["name"])) or {}
            for rule in role.get("rules", []):
                yield Rule(
                    verbs=rule.get("verbs", ()),
                    resources=rule.get("resources", ()),
                    groups=rule.get("apiGroups", ()),
                    names=rule.get("resourceNames") or ("*",),
                )


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    """Not allowed, and what would have to be."""
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details_of(resource, name))


def _is_subject(user: str, subject: Object) -> bool:
    if subject["kind"] == "ServiceAccount":
        return user == f"system:serviceaccount:{subject.get('namespace')}:{subject['name']}"
    if subject["kind"] == "User":
        return bool(user == subject["name"])
    return subject["name"] in _groups_of(user)


def _groups_of(user: str) -> tuple[str, ...]:
    if user == ANONYMOUS:
        return ("system:unauthenticated",)
    if not user.startswith("system:serviceaccount:"):
        return ("system:authenticated",)
    return "system:authenticated", "system:serviceaccounts", f"system:serviceaccounts:{user.split(':')[2]}"


def _refusal(user: str, call: Call) -> str:
    where = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
    group = call.resource.group
    return f'User "{user}" cannot {call.verb} resource "{call.target}" in API group "{group}" {where}'
