"""Would an API server take it? By Kubernetes' own schemas, and for the Prometheus Operator's kinds those in `crds/`."""

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
from kubernetes_validate import utils

from tests import fast_yaml
from tests.deploy.rendering import Manifest

# For each object it would read megabytes of definitions again; a few are the version's at hand.
utils.schema_contents = lru_cache(maxsize=8)(utils.schema_contents)
utils.all_versions = cache(utils.all_versions)

CRDS = Path(__file__).parent / "crds"
FIRST = 30
VERSIONS = tuple(f"1.{minor}" for minor in range(FIRST, int(kubernetes_validate.latest_version().split(".")[1]) + 1))
"""ValidatingAdmissionPolicy is stable from 1.30 on, and pods' tokens name their node."""


@cache
def custom() -> dict[str, Any]:
    """Kind -> schema that refuses unknown fields."""
    found = (fast_yaml.load(file.read_text())["spec"] for file in CRDS.glob("*.yaml"))
    return {spec["names"]["kind"]: _strict(spec["versions"][0]["schema"]["openAPIV3Schema"]) for spec in found}


def _strict(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inside = {key: _strict(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inside} if "properties" in schema else inside


def complaints(manifest: Manifest, version: str) -> tuple[str, ...]:
    """Why this version refuses it; nothing when it takes it."""
    return _complaints(json.dumps(manifest), "" if manifest["kind"] in custom() else version)


@cache
def _complaints(text: str, version: str) -> tuple[str, ...]:
    """Most objects are the same in many installations, so each is looked at once."""
    manifest = json.loads(text)
    name = f"{manifest['kind']}/{manifest['metadata']['name']}"
    try:
        if version:
            kubernetes_validate.validate(manifest, version, strict=True)
        else:
            jsonschema.validate(manifest, custom()[manifest["kind"]])
    except (jsonschema.ValidationError, kubernetes_validate.ValidationError) as error:
        return (f"{name}: {'.'.join(map(str, error.path))}: {error.message}",)
    except kubernetes_validate.SchemaNotFoundError as error:
        return (f"{name}: {error.message}",)
    return ()
