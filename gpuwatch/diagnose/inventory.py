"""What a node is made of, as flat text: for comparing two nodes. Nothing in it changes by itself, nothing names one."""

from gpuwatch.diagnose.facts import Facts


def inventory(facts: Facts) -> dict[str, str]:
    """Key -> value: `driver`, `kernel`, `gpus`, `gpu.0.model`, ...; what is unknown is missing."""
    return {}
