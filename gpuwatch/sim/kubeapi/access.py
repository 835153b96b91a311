"""Who asks, and whether they may: bearer tokens and rules as RBAC has them."""

from collections.abc import Collection, Mapping

import msgspec

from gpuwatch.sim.kubeapi.resources import Resource
from gpuwatch.sim.kubeapi.route import Call
from gpuwatch.sim.kubeapi.status import ApiError, details_of, unauthorized

ANONYMOUS = "system:anonymous"
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
    """Users by token and rules by user."""

    def __init__(self, anonymous: str = ANONYMOUS) -> None:
        self.tokens: dict[str, str] = {}
        """Token to user."""
        self.permissions: dict[str, tuple[Rule, ...]] = {}
        self._anonymous = anonymous

    def add(self, user: str, rules: tuple[Rule, ...], token: str) -> None:
        """Let a user in; an old token of theirs is as good as a new one."""
        self.tokens[token] = user
        self.permissions[user] = rules

    def user_of(self, headers: Mapping[str, str]) -> str:
        """Return who asks. Raises ApiError 401 for a token that nobody was given."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if not scheme:
            return self._anonymous
        user = self.tokens.get(token.strip()) if scheme.lower() == "bearer" else None
        if user is None:
            raise unauthorized()
        return user

    def token_of(self, user: str) -> str | None:
        """A token of this user, if there is one."""
        return next((token for token, owner in self.tokens.items() if owner == user), None)

    def allows(self, user: str, call: Call) -> bool:
        """Whether one of the user's rules allows it."""
        return any(rule.allows(call) for rule in self.permissions.get(user, ()))

    def check(self, user: str, call: Call) -> None:
        """Raise ApiError 403 unless the call is allowed."""
        if not self.allows(user, call):
            raise forbidden(call.resource, call.name, _refusal(user, call))

    def check_path(self, user: str, path: str) -> None:
        """Raise ApiError 403 for a path that is none of a resource, unless it is public or the user is known."""
        if user not in self.permissions and not path.startswith(_PUBLIC):
            raise ApiError(403, "Forbidden", f'forbidden: User "{user}" cannot get path "{path}"', {})


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    """Not allowed, and what would have to be."""
    subject = f'{resource.qualified} "{name}"' if name else resource.qualified
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", details_of(resource, name))


def _refusal(user: str, call: Call) -> str:
    where = f'in the namespace "{call.namespace}"' if call.namespace else "at the cluster scope"
    group = call.resource.group
    return f'User "{user}" cannot {call.verb} resource "{call.target}" in API group "{group}" {where}'
