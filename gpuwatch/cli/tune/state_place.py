"""Where what gpuwatch sets is recorded. Commands that set nothing ask it, too, so it stands apart from the knobs."""

from pathlib import Path

from gpuwatch.config import Config
from gpuwatch.model.errors import UsageError


def state_place(config: Config) -> Path:
    """The state directory.

    Raises:
        UsageError: there is none: what is not recorded cannot be given back.
    """
    if not config.state_dir:
        raise UsageError("tuning needs a state directory", "state_dir is empty", "name it with --state-dir")
    return Path(config.state_dir)
