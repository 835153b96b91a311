"""Users by bearer token, and the rules of what each may do."""

from collections.abc import Collection, Mapping

import msgspec

from gpuwatch.sim.kubeapi.messages import ApiError, details_of, qualified
from gpuwatch.sim.kubeapi.resources import ServerCall

ANONYMOUS = "system:anonymous"


class AccessRule(msgspec.Struct, frozen=True, kw_only=True):
    """A set of allowed calls; `*` stands for everything."""

    verbs: Collection[str]
    resources: Collection[str]
    """`nodes`, `nodes/status`, `pods/eviction`, ..."""
    groups: Collection[str] = ("*",)
    namespaces: Collection[str] = ("*",)
    """Empty string: cluster-scoped, or all namespaces at once."""
    names: Collection[str] = ("*",)
    """As with resourceNames, a rule that names objects does not allow to create or list."""

    def allows(self, call: ServerCall) -> bool:
        """Whether this rule allows the call."""
        requested = (
            (self.verbs, call.verb),
            (self.resources, call.target),
            (self.groups, call.resource.group),
            (self.namespaces, call.namespace),
            (self.names, call.name or None),
        )
        return all("*" in allowed or value in allowed for allowed, value in requested)


EVERYTHING = (AccessRule(verbs=("*",), resources=("*",)),)


class Access:
    """Authentication and authorization."""

    def __init__(self) -> None:
        self._tokens: dict[str, str] = {}
        self._rules: dict[str, tuple[AccessRule, ...]] = {}

    def add(self, user: str, rules: tuple[AccessRule, ...], token: str) -> None:
        """Add a user with these rules, or replace the rules of one; old tokens stay valid."""
        self._tokens[token] = user
        self._rules[user] = rules

    def token_of(self, user: str) -> str | None:
        """A token of this user, if there is one."""
        return next((token for token, owner in self._tokens.items() if owner == user), None)

    def user_of(self, headers: Mapping[str, str]) -> str:
        """Return the user of a request. Raises ApiError 401 for an unknown token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if not scheme:
            return ANONYMOUS
        user = self._tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return user

    def check(self, user: str, call: ServerCall) -> None:
        """Raise ApiError 403 unless the call is allowed."""
        if any(rule.allows(call) for rule in self._rules.get(user, ())):
            return
        resource = call.resource
        subject = qualified(resource.group, resource.plural) + (f' "{call.name}"' if call.name else "")
        where = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
        why = f'User "{user}" cannot {call.verb} resource "{call.target}" in API group "{resource.group}" {where}'
        details = details_of(resource.group, resource.plural, call.name)
        raise ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details)
