"""Lists as a table, `Accept: application/json;as=Table;v=v1;g=meta.k8s.io`: what kubectl prints, and cheap to count."""

from gpuwatch.sim.kubeapi.message import Object

_COLUMNS = [
    {"name": name, "type": kind, "format": "", "description": "", "priority": 0}
    for name, kind in (("Name", "string"), ("Created At", "date"))
]
"""Of resources without columns of their own; the real server has more for nodes and pods."""


def wants_table(accept: str) -> bool:
    """Whether an Accept header asks for a table before anything else."""
    first, *parameters = (part.strip() for part in accept.partition(",")[0].split(";"))
    return first == "application/json" and "as=Table" in parameters


def table_of(listed: Object, include: str) -> Object:
    """The table of a list. `include`: the option includeObject, which of each object goes along."""
    whole = {"kind": listed["kind"].removesuffix("List"), "apiVersion": listed["apiVersion"]}
    rows = [
        {
            "cells": [each["metadata"]["name"], each["metadata"]["creationTimestamp"]],
            "object": _kept({**whole, **each}, include),
        }
        for each in listed["items"]
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": listed["metadata"],
        "columnDefinitions": _COLUMNS,
        "rows": rows,
    }


def _kept(each: Object, include: str) -> Object | None:
    if include in ("None", "Object"):
        return each if include == "Object" else None
    return {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": each["metadata"]}
