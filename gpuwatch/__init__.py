"""gpuwatch: one node agent that exports, judges and tunes NVIDIA GPUs. Importing it costs nothing."""

__version__ = "0.1.0"
DISTRIBUTION = "gpuwatch-agent"
"""Its name on package indexes. This and what follows come from pyproject.toml: `make site`."""
PROJECT_URL = "https://github.com/gpuwatch/gpuwatch"
IMAGE = "ghcr.io/gpuwatch/gpuwatch"
RUNBOOKS = "https://github.com/gpuwatch/gpuwatch/blob/main/docs/runbooks"
"""Where NAME.md is the runbook of the alert NAME; an agent serves the same pages below /runbooks."""
