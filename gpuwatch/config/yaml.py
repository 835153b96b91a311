"""YAML as people mean it: `off` is a word and 22:00 a time, as in YAML 1.2; a key written twice is an error."""

import re
from typing import Any

import yaml

_INT = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0o?[0-7_]+|[0-9][0-9_]*)$")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.[0-9]+|\.(?:inf|nan))$")
_BOOL = re.compile(r"(?:yes|Yes|no|No|true|True|TRUE|false|False|FALSE)$")
_MEANT = {"int": _INT, "float": _FLOAT, "bool": _BOOL}


class _Loader(yaml.SafeLoader):
    """SafeLoader with fewer surprises."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, _MEANT.get(tag.rpartition(":")[2], pattern)) for tag, pattern in rows]
    for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
    for number, key in enumerate(keys):
        if key in keys[:number]:
            raise yaml.constructor.ConstructorError(None, None, f"the key {key} stands there twice", node.start_mark)
    loader.flatten_mapping(node)
    return loader.construct_mapping(node, deep=True)


_Loader.add_constructor("tag:yaml.org,2002:map", _mapping)


def decode(text: str) -> Any:
    """The document.

    Raises:
        yaml.YAMLError: it is none, or a key stands there twice.
    """
    return yaml.load(text, Loader=_Loader)  # noqa: S506 a SafeLoader
