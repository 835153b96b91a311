"""Which Node this process is responsible for, and in which pod it runs: told by the environment, never guessed."""

import os
from collections.abc import Mapping
from typing import NamedTuple

from gpuwatch.config import RemediationConfig, TuningConfig
from gpuwatch.model.errors import UsageError

DEFAULT_NAMESPACE = "gpuwatch"


class Place(NamedTuple):
    """`pod` is (namespace, name) of our own, None outside of pods. `namespace`: of the budget's Leases, by default."""

    node: str
    namespace: str = DEFAULT_NAMESPACE
    pod: tuple[str, str] | None = None

    @classmethod
    def of(cls, config: RemediationConfig | TuningConfig, environment: Mapping[str, str] = os.environ) -> "Place":
        """The configuration first, then NODE_NAME, POD_NAMESPACE and POD_NAME as the downward API gives them.

        Raises:
            UsageError: nobody says which Node it is; the host's name may be another one's.
        """
        node = config.node_name or environment.get("NODE_NAME", "")
        if not node:
            raise UsageError(
                "no node name is known",
                "the name of a host need not be that of its Node",
                "set NODE_NAME from spec.nodeName, or give --node-name",
            )
        own, name = environment.get("POD_NAMESPACE", ""), environment.get("POD_NAME", "")
        return cls(
            node=node,
            namespace=own or DEFAULT_NAMESPACE,
            pod=(own, name) if own and name else None,
        )
