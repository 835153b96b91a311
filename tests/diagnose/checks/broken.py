"""What breaks each check: a host on which it passes, one thing done to it, and what the check then says."""

from collections.abc import Callable
from typing import Any, NamedTuple

from gpuwatch.diagnose.model import CheckStatus
from tests.diagnose.hosts import Host


class Broken(NamedTuple):
    """One way to break one check. After `well` (what has to be there for the check to say anything) it passes; after
    `breaks` its message contains `message`, and its remedy and commands `remedy`. `node`: as in a scenario.
    """

    id: str
    breaks: Callable[[Host], None]
    message: str
    remedy: str
    result: CheckStatus = CheckStatus.FAIL
    well: Callable[[Host], None] = lambda host: None
    node: dict[str, Any] = {}
    passes: bool = True
    """False: without the fault it has nothing to say and is skipped."""
    active: bool = False
