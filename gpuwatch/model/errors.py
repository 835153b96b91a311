"""The exceptions gpuwatch raises on purpose; each names what failed, why, and what to do next.

GpuwatchError                 exit 1   could not answer
|- UsageError                 exit 2   usage or configuration
|- Unsupported                exit 1   this GPU or driver does not offer the function, or not this value
|- NoGpuStack                 exit 5   no driver, no NVML, no GPU
`- PermissionMissing          exit 6   a right or capability is missing
"""

LONGEST_REASON = 4096
"""Characters of why: it may quote a file of others, whose one name or value has megabytes."""


class GpuwatchError(Exception):
    """A request cannot be met. `str()` gives `WHAT; WHY; NEXT STEP` without empty parts."""

    exit_code = 1

    def __init__(self, what: str, why: str = "", next_step: str = "") -> None:
        self.what, self.why, self.next_step = what, why[:LONGEST_REASON], next_step
        super().__init__("; ".join(part for part in (what, self.why, next_step) if part))


class UsageError(GpuwatchError):
    """The command line or the configuration is wrong."""

    exit_code = 2


class Unsupported(GpuwatchError):
    """This GPU or driver does not offer the function, or not this value; nothing was changed."""


class NoGpuStack(GpuwatchError):
    """There is no driver, no NVML library or no GPU to ask."""

    exit_code = 5


class PermissionMissing(GpuwatchError):
    """A file permission or a capability is missing; `next_step` names it."""

    exit_code = 6
