"""RESOURCES, the table of what is served; adding a resource is a row here, and rules in validation.py if it has any."""

from collections.abc import Mapping

import msgspec

Path = tuple[str, ...]


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of the API, and how its strategy in kube-apiserver treats it."""

    group: str = ""
    plural: str
    singular: str
    kind: str
    short_names: tuple[str, ...] = ()
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    fields: Mapping[str, Path] = {}
    """Fields that select, besides metadata.name and metadata.namespace."""
    strict_fields: bool = False
    """Unknown field selectors are refused in the short words of a hand-written conversion."""
    create_on_update: bool = False
    """PUT may create."""
    unconditional_update: bool = True
    """PUT may leave resourceVersion out."""
    returns_deleted: bool = False
    """DELETE answers with the object instead of a Status."""
    generation: bool = False
    """metadata.generation counts changes of spec."""

    @property
    def api_version(self) -> str:
        """Group and version, as objects carry it."""
        return f"{self.group}/v1" if self.group else "v1"

    @property
    def qualified(self) -> str:
        """Plural and group, as messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """Kind and group, as messages about invalid objects name it."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


def _paths(*dotted: str) -> dict[str, Path]:
    return {each: tuple(each.split(".")) for each in dotted}


RESOURCES = (
    Resource(
        plural="nodes",
        singular="node",
        kind="Node",
        short_names=("no",),
        namespaced=False,
        subresources=("status",),
        fields=_paths("spec.unschedulable"),
        strict_fields=True,
    ),
    Resource(
        plural="pods",
        singular="pod",
        kind="Pod",
        short_names=("po",),
        subresources=("status", "eviction"),
        fields=_paths("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "status.phase"),
        strict_fields=True,
        returns_deleted=True,
        generation=True,
    ),
    Resource(
        plural="events",
        singular="event",
        kind="Event",
        short_names=("ev",),
        fields={
            **_paths(*(f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion"))),
            **_paths("reason", "type", "reportingComponent"),
            "source": ("source", "component"),
        },
        strict_fields=True,
        create_on_update=True,
    ),
    Resource(
        plural="namespaces",
        singular="namespace",
        kind="Namespace",
        short_names=("ns",),
        namespaced=False,
        subresources=("status",),
        fields=_paths("status.phase"),
        returns_deleted=True,
    ),
    Resource(
        group="coordination.k8s.io",
        plural="leases",
        singular="lease",
        kind="Lease",
        create_on_update=True,
        unconditional_update=False,
    ),
    Resource(
        group="policy",
        plural="poddisruptionbudgets",
        singular="poddisruptionbudget",
        kind="PodDisruptionBudget",
        short_names=("pdb",),
        subresources=("status",),
        unconditional_update=False,
        generation=True,
    ),
    *(
        Resource(
            group="rbac.authorization.k8s.io",
            plural=f"{kind.lower()}s",
            singular=kind.lower(),
            kind=kind,
            namespaced=not kind.startswith("Cluster"),
        )
        for kind in ("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
    ),
)

BY_PLURAL = {resource.plural: resource for resource in RESOURCES}
BY_PATH = {(resource.group, resource.plural): resource for resource in RESOURCES}
GROUPS = tuple(sorted({resource.group for resource in RESOURCES if resource.group}))
